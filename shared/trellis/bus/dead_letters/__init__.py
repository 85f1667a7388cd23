"""Messages that were given up on: written, read, replayed."""
