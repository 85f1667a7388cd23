"""``trellis dev``."""
