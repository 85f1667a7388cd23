"""A lattice followed: hosts, applications, and copies of its events."""
