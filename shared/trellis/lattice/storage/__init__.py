"""The bucket in which wadm stores applications."""
