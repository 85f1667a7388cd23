"""Watches on behalf of one viewer."""
