"""wasmCloud lattices, observed over their own NATS: subjects, hosts, wadm applications, and lattice connections.

The only package with the API of wadm and lattice subjects. The NATS of a lattice is never the bus: it has other
addresses and credentials, and no other part of Trellis depends on its availability.
"""
