"""Nodes, Shims and installer Jobs, as the services that provision nodes read them. Pure."""
