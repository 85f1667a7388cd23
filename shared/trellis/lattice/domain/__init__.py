"""Hosts, applications and manifests of a lattice, as values. Pure."""
