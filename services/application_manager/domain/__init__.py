"""Decisions about Applications: the side that changed, and the actions on the other side. Pure."""
