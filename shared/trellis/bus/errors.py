"""Errors of the bus, with messages for users.

Raised by ``trellis.bus`` only. Callers catch these, never the errors of the NATS libraries.
"""

from __future__ import annotations


class BusError(Exception):
    """Base class of the errors of the bus."""


class BusUnavailable(BusError):  # noqa: N818 (named after the condition, as Kubernetes' errors are)
    """NATS or JetStream did not answer in time; the event is valid, retry later."""


class NotAllowed(BusUnavailable):
    """The NATS user lacks the permission to publish; retry once the permission is granted."""


class EventRefused(BusError):  # noqa: N818
    """The event can never be published as it is: too large, or not accepted by its stream."""


class ServerTooNarrow(BusError):  # noqa: N818
    """NATS rejects messages of the size of an event: a user has to raise max_payload of the server or the account."""


class StreamError(BusError):
    """A stream has a wrong configuration: a user has to change a setting or the stream."""


class ClusterNameInUse(BusError):  # noqa: N818
    """Another cluster uses the name of this cluster on the bus, which is unusable until that cluster is renamed."""
