"""Decisions about an installation or removal on a node. Pure."""
