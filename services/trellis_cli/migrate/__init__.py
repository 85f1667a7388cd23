"""``trellis migrate``."""
