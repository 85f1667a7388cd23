"""Scheduling of guests: turns, keys, and suspension."""
