"""``trellis secrets``."""
