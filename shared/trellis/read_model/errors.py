"""What was asked for cannot be shown. Raised by what reads here, told by whoever shows it."""

from __future__ import annotations


class AnswerError(Exception):
    """A question that has no answer; its text is one line for people and says what to do."""
