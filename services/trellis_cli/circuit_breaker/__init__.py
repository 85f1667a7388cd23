"""``trellis circuit-breaker``."""
