"""``trellis breaker``."""
