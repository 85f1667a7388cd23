"""``trellis controllers``."""
