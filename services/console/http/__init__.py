"""HTTP server of the console: routes, responses, static files."""
