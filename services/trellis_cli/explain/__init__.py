"""``trellis explain``."""
