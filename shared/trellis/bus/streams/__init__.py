"""JetStream streams: create, supervise, read from any position."""
