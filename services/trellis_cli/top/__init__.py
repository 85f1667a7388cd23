"""``trellis top``."""
