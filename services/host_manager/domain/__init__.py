"""The children and the status of a host group. Pure."""
