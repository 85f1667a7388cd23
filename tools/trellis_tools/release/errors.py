"""The error of a release: bad input, a checkout that cannot be released, or a program that failed."""

from __future__ import annotations


class ReleaseError(Exception):
    """A release that cannot be made. The message names the input, file or program, and the remedy."""
