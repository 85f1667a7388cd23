"""Decisions about slots, nodes and Shims, and the manifests. Pure."""
