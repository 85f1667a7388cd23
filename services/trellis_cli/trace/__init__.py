"""``trellis trace``."""
