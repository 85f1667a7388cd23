"""Modules of controllers: fetched, checked, compiled."""
