"""The lifecycle of a service process: start, leadership, work, shutdown."""
