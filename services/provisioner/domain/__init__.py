"""Which nodes may be in progress, what to do about each node and Shim, and the manifests. Pure."""
