"""Shared code of the commands: errors, options, output, settings."""
