"""``trellis check``."""
