"""``trellis status``."""
