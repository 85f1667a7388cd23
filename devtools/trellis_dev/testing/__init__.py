"""Builders of test data: Nodes, Shims and installer Jobs, as views of the API server."""
