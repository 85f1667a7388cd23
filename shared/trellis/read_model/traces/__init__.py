"""A trace as Jaeger returns it, as a tree. Pure."""
