"""The ``trellis`` command: runs any set of services in one process, and the tools around them.

Consumes: what the services it runs consume; Nodes, Leases and facts for its tables.
Emits and owns nothing of its own.
"""
