"""Errors of the bus, with messages for users.

Raised by ``trellis.bus`` only. Callers catch these, never the errors of the NATS libraries.
"""

from __future__ import annotations


class BusError(Exception):
    """Base of what the bus raises."""


class BusUnavailable(BusError):  # noqa: N818 (named after the condition, as Kubernetes' errors are)
    """NATS or its JetStream did not answer in time: try again later, nothing is wrong with the event."""


class NotAllowed(BusUnavailable):
    """NATS does not let this user say it: it can be said once a user has given it the permission."""


class FactRefused(BusError):  # noqa: N818
    """The event can never be published as it is: too large, or not accepted by its stream."""


class ServerTooNarrow(BusError):  # noqa: N818
    """NATS takes no message of an event's size: a user has to raise max_payload of the server or the account."""


class StreamError(BusError):
    """A stream is not as it must be, and a user has to change a setting or the stream."""


class ClusterTaken(BusError):  # noqa: N818
    """Another cluster has this cluster's name on the bus: nothing is said or heard until it is gone or renamed."""
