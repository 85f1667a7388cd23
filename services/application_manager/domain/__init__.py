"""Which side of an Application changed, and what the other side is given. Pure."""
