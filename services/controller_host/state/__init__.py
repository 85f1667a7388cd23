"""State of guests on disk: snapshots and processed versions."""
