"""A lattice followed: which host groups name it, its hosts, its applications, and copies of its events."""
