"""State of guests on disk: snapshots, progress, marks."""
