"""Development tools: local clusters, test doubles of the API server, and the demo."""
