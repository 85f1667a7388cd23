"""What a migration writes, from what a retired operator left. Pure."""
