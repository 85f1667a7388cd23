"""Lattice connections: one NATS connection per address and credentials."""
