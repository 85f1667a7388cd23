"""``trellis dead-letters``."""
