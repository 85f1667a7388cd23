"""Publishing to JetStream, and its availability."""
