"""Writes the schemas of events, and the table of subjects."""
