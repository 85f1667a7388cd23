"""The life of a service process: start, leadership, work, shutdown."""
