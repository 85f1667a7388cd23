"""``trellis shims``."""
