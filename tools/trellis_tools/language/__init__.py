"""The linter for language: extracts the texts that people read, and runs Vale over them (``make language``)."""
