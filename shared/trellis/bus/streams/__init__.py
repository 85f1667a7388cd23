"""The streams: made, kept, read from any point."""
