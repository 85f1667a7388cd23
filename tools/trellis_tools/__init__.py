"""Programs for ``make generate`` and releases; not part of any distribution or image."""
