"""Following a lattice: its host groups, hosts, applications, and forwarding of its events."""
