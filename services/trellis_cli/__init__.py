"""The ``trellis`` command: runs any set of services in one process, and the tools for their operation.

Consumes: the inputs of the services that it runs; Nodes, Leases and events for its tables.
Emits and owns no objects itself.
"""
