"""The connection to a NATS server: dialled, kept, closed."""
