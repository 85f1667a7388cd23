"""``trellis run``."""
