"""An API server in memory, for tests of services."""
