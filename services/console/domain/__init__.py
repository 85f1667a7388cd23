"""Limits of the console, and messages cut into pieces. Pure."""
