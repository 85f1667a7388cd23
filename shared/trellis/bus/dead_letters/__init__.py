"""Dead letters: write, read, replay."""
