"""``trellis migrate to-v2``."""
