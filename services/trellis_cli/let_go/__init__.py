"""``trellis let-go``."""
