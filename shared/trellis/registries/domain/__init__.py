"""Checks of addresses, images and layers, as values. Pure."""
