"""Which guest runs when, for which keys, and which is suspended."""
