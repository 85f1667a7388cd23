"""Programs that ``make generate`` and releases call; in no distribution and no image."""
