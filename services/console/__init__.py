"""Shows a cluster and its lattices to people, live and read-only: the JSON and the streams that a page draws.

Consumes: every fact, copies of lattice events and dead letters of its cluster, by consumers that acknowledge nothing.
Emits: nothing. Owns (is the only writer of): nothing; it has no right of its own in Kubernetes but, behind a proxy, to
be somebody else. Each read is the viewer's.
"""
