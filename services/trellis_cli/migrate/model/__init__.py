"""Plans of migrations from retired operators. Pure."""
