"""Decides about patches of Nodes and events. Pure."""
