"""One list and watch for each kind, shared by all controllers."""
