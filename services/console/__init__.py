"""Shows a cluster and its lattices in the browser, live and read-only: JSON and streams for the page.

Consumes: all events, forwarded lattice events and dead letters of its cluster, by consumers that acknowledge nothing;
if a NATS of wasmCloud v2 is configured, the heartbeats of its hosts. Publishes: nothing. Owns (is the only writer of):
nothing. It has no permission of its own in Kubernetes except, behind a proxy, impersonation; each read uses the
identity of the viewer.
"""
