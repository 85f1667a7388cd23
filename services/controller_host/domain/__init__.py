"""Parsing and validation of calls, watches and references of controllers. Pure."""
