"""The connection to a NATS server: open, supervise, close."""
