"""``trellis apps``."""
