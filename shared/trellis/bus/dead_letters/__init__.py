"""Messages that were dead-lettered: written, read, replayed."""
