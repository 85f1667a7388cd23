"""The prose linter: extracts texts for users and developers, and runs Vale over them (``make language``)."""
