"""Errors of a request for state. Raised by readers, reported by the command line and the console."""

from __future__ import annotations


class AnswerError(Exception):
    """A request that cannot be answered; its text is one line with the resolution."""
