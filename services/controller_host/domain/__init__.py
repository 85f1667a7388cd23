"""Calls, watches and references of controllers, read and checked. Pure."""
