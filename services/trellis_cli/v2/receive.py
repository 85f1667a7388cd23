"""Receives heartbeats and replies of hosts of wasmCloud v2 for a bounded time.

In: an address, the IDs of hosts. Out: ``HostMessages``. Called for a page. Invariants: two subjects at most,
``runtime.operator.heartbeat.>`` and with permission of the user ``_INBOX.>``; a subscription of ``runtime.host.>`` or
``>`` would turn "no responders" into timeouts for the operator; nothing is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.listen import Listened, listen
from trellis.lattice.connection.subscriptions import MessageHandler as Handler
from trellis.lattice.follow.heartbeats import HEARTBEAT_SUBJECT
from trellis.lattice.timings import ListenTimings
from trellis.v2.host_messages import Collector, HostMessages
from trellis.v2.timings import V2Timings

CONNECTION: Final = "trellis-command-line"
REPLY_SUBJECT: Final = "_INBOX.>"
_CHECK_ADDRESS: Final = "check the URL of --v2-nats, and the credentials in TRELLIS_V2_NATS_CREDENTIALS_FILE"
_CHECK_CA: Final = "use a URL and a CA (TRELLIS_V2_NATS_CA_FILE) that fit the certificate of the server"


def subjects(*, replies: bool) -> tuple[str, ...]:
    """Return the subjects that are subscribed to; docs/v2/permissions.md has the permissions for them."""
    return (HEARTBEAT_SUBJECT, REPLY_SUBJECT) if replies else (HEARTBEAT_SUBJECT,)


def duration(timings: V2Timings, *, replies: bool) -> float:
    """Return the seconds to listen for.

    A heartbeat arrives each 15 s; the cause of a failed start is repeated when its Workload is replaced, after 60 s.
    """
    return (timings.replaced if replies else timings.heartbeat) + timings.slack


async def receive(
    address: NatsAddress,
    hosts: Collection[str],
    now: Callable[[], float],
    *,
    replies: bool = False,
    timings: ListenTimings | None = None,
) -> HostMessages:
    """Return the messages of hosts; with replies after the full time, otherwise once each of ``hosts`` (IDs) sent one.

    ``now``: Unix seconds by the clock that times of Kubernetes are compared with.
    """
    collector, wanted = Collector(), frozenset(hosts)
    timings = timings or replace(ListenTimings(), listen=duration(V2Timings(), replies=replies))

    def enough() -> bool:
        return not replies and bool(wanted) and wanted <= collector.hosts

    handlers: dict[str, Handler] = {
        HEARTBEAT_SUBJECT: lambda subject, payload: collector.heartbeat(subject, payload, now()),
        REPLY_SUBJECT: collector.reply,
    }
    if replies:
        collector.expect_replies()
    chosen = {subject: handlers[subject] for subject in subjects(replies=replies)}
    found: Listened = await listen(address, CONNECTION, chosen, enough, timings)
    collector.dropped += found.dropped
    error = found.error or found.denied.get(HEARTBEAT_SUBJECT, "")
    resolution = (_CHECK_CA if found.untrusted else _CHECK_ADDRESS) if error else ""
    result = replace(collector.result(found.seconds, error=error), resolution=resolution)
    denied = found.denied.get(REPLY_SUBJECT, "")
    return replace(result, replies=None, replies_error=denied) if denied else result
