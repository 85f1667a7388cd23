"""Connections to the NATS of lattices: one for each address and credentials."""
