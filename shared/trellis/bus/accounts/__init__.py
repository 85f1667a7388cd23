"""Users of a NATS server: permissions, the claim of a cluster to its name, certificates."""
