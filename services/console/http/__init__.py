"""The console's port: routes, answers, the page's files."""
