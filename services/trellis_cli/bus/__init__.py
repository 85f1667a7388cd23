"""``trellis bus``."""
