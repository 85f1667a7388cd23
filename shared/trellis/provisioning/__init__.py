"""Nodes, Shims and installer Jobs as views of the services that provision nodes. Pure."""
