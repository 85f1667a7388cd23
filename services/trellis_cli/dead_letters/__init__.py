"""``trellis dead``."""
