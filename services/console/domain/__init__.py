"""Limits of the console, and the messages of its streams. Pure."""
