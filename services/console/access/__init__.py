"""Viewers: log-in, sessions, and what each may see."""
