"""Which nodes may be in work, what to do about each node and Shim, and the manifests. Pure."""
