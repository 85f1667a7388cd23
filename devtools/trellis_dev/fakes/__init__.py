"""An in-memory API server for tests of services."""
