"""Users of a NATS server: their permissions, a cluster's claim to its name, certificates."""
