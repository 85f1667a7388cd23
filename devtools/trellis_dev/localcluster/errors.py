"""Errors of local clusters, with messages for users.

Raised by every module of this package; the command line prints the message and exits with status 1.
Invariant: a message names the object (tool, cluster, file) and the remedy.
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """A local cluster could not be started, reached or changed."""


class ToolError(LocalClusterError):
    """A program that the cluster needs could not be found or built."""


class StartError(LocalClusterError):
    """A component ended, or was not ready in time."""


class PortInUseError(StartError):
    """A port of a component is in use; a retry with other ports can succeed."""


class AbortedError(LocalClusterError):
    """The caller requested a stop while the cluster was starting."""
