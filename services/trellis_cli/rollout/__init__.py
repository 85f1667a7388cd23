"""``trellis rollout``."""
