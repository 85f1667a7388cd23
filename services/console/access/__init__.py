"""Viewers: login, sessions, and permissions."""
