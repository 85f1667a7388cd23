"""wasmCloud lattices as seen over their own NATS: subjects, hosts, wadm's applications, and the links to them.

The only package that knows wadm and lattice subjects. A lattice's NATS is never the bus: it has other addresses and
other credentials, and nothing of Trellis depends on its being up.
"""
