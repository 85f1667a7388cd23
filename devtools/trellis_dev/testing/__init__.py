"""Builders that name a world for tests: a Node, an installer Job, as the API server or a decision sees them."""
