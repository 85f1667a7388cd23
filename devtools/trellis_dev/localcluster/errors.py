"""What can go wrong on the way to a local cluster, said to a person.

Raised by every module of this package; the command line prints the message and exits with status 1.
Invariant: a message names the thing (tool, cluster, file) and what to do about it.
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """A local cluster could not be brought up, reached or changed."""


class ToolError(LocalClusterError):
    """A program that the cluster needs could not be found or built."""


class StartError(LocalClusterError):
    """A component ended, or was not ready in time."""


class PortInUseError(StartError):
    """A component found one of its ports taken: it is worth starting again with other ports."""


class AbortedError(LocalClusterError):
    """The caller asked to stop while the cluster was starting."""
