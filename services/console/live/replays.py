"""Pages of stored events, and dead letters, limited to the permissions of the viewer.

In: a query, permissions. Out: pages as JSON. Called by routes. Invariants: a page is bounded in results, in messages
read and in time, and names the start of the next one; hidden messages are not counted, but missing permissions are
named.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from console.access.permissions import ReviewedPermissions
from console.domain.limits import DEAD_LETTERS as DEAD_LETTERS_MOST
from console.domain.limits import MESSAGES_READ, PAGE_EVENTS
from console.http.refusals import RefusedError, bad, not_allowed
from console.live.about import dead_letter_object
from console.live.bus_connection import BusConnection
from console.live.feed import (
    DEAD_LETTERS,
    EVENTS,
    LATTICE,
    Filter,
    Item,
    dead_letter_item,
    item_of,
    permissions_of,
    read_filter,
    stored_since,
)
from trellis.bus.dead_letters.read import DeadLetter, read_dead_letter
from trellis.bus.streams.stream_reader import EVERYTHING, Start
from trellis.bus.streams.tail import event_of
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, escape
from trellis.installer_api.parse_int import whole
from trellis.read_model.reading.dead_letters import full_document
from trellis.read_model.reading.explained_dead_letter import explain_dead_letter

_STREAMS: Final = {EVENTS: STREAM_EVENTS, LATTICE: STREAM_LATTICE}


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of stored events. ``after``: a sequence, which takes precedence over ``since``."""

    stream: str
    wanted: Filter
    after: int | None
    since: datetime | None
    until: datetime | None
    most: int

    @property
    def start(self) -> Start:
        """Start of the page."""
        if self.after is not None:
            return Start(sequence=self.after + 1)
        return Start(since=self.since) if self.since is not None else EVERYTHING

    @property
    def subjects(self) -> str:
        """Filter of subjects after root and cluster, as narrow as one NATS filter allows."""
        if self.stream == LATTICE:
            return f"{escape(self.wanted.lattice)}.>" if self.wanted.lattice else "*.>"
        item = self.wanted.types[0] if len(self.wanted.types) == 1 else ""
        noun, _, event = item.partition(".")
        if not noun or "*" in noun:
            return ">"
        return f"{escape(noun)}.{escape(event)}.>" if event and "*" not in event else f"{escape(noun)}.>"


def read_page_request(query: Mapping[str, str]) -> PageRequest:
    """Return the page of a query; raises RefusedError for an invalid one."""
    wanted = read_filter({"streams": EVENTS} | dict(query))
    if len(wanted.streams) != 1 or not wanted.streams <= _STREAMS.keys():
        raise bad("exactly one stream is required", f"set streams to one of: {', '.join(_STREAMS)}")
    after, limit = query.get("after", ""), query.get("limit", "")
    if (after and whole(after) is None) or (limit and not 1 <= (whole(limit) or 0) <= PAGE_EVENTS):
        raise bad("invalid after or limit", f"after is a sequence or absent; limit is a number from 1 to {PAGE_EVENTS}")
    return PageRequest(
        next(iter(wanted.streams)),
        wanted,
        whole(after),
        stored_since(query.get("since", "")),
        stored_since(query.get("until", "")),
        whole(limit) or PAGE_EVENTS,
    )


async def replay(
    bus: BusConnection, permissions: ReviewedPermissions, page: PageRequest, *, seconds: float
) -> dict[str, Any]:
    """Return a page, oldest first, and the sequence before the next one, None at the end.

    Reads for at most ``seconds``.

    Raises:
        RefusedError: the bus is unavailable, or forbidden.
    """
    shown: list[Item] = []
    at: int | None = page.after
    messages_read, more = 0, False
    past = bus.past(_STREAMS[page.stream], page.subjects, page.start)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), contextlib.aclosing(past) as messages:
            more = True  # until the end is reached
            async for message, _ in messages:
                if page.until is not None and message.stored > page.until:
                    break
                if len(shown) == page.most or messages_read == MESSAGES_READ:
                    return await _page(shown, at, permissions, page)
                messages_read += 1
                item = item_of(event_of(message))
                if page.wanted.wants(item) and await permissions.allowed(item.about.permission):
                    shown.append(item)
                at = message.sequence
            more = False
    return await _page(shown, (at or 0) if more else None, permissions, page)


async def _page(
    items: list[Item], after: int | None, permissions: ReviewedPermissions, page: PageRequest
) -> dict[str, Any]:
    lacking = await permissions.lacking(permissions_of(page.wanted.streams))
    return {"events": [item.document for item in items], "next": after, "lacking": lacking}


async def dead_letters(
    bus: BusConnection, permissions: ReviewedPermissions, query: Mapping[str, str], *, seconds: float
) -> dict[str, Any]:
    """Return the newest dead letters that the viewer can read, without bodies, newest first."""
    wanted = read_filter(dict(query) | {"streams": DEAD_LETTERS})
    reason = query.get("reason", "").lower()
    shown: list[dict[str, Any]] = []
    past = bus.past(STREAM_DEAD, ">", Start(last=DEAD_LETTERS_MOST), headers_only=True)
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(past) as messages:
            async for message, epoch in messages:
                dead_letter = read_dead_letter(message, epoch)
                item = dead_letter_item(dead_letter)
                fits = wanted.wants(item) and reason in {"", dead_letter.reason.lower()}
                if fits and await permissions.allowed(item.about.permission):
                    shown.append(dict(item.document))
    except TimeoutError:
        raise RefusedError(503, "reading dead letters timed out", "retry") from None
    lacking = await permissions.lacking(permissions_of(wanted.streams))
    return {"dead_letters": shown[::-1], "most": DEAD_LETTERS_MOST, "lacking": lacking}


async def dead_letter_page(bus: BusConnection, permissions: ReviewedPermissions, sequence: int) -> dict[str, Any]:
    """Return a dead letter with its body and its cause.

    Raises:
        RefusedError: it does not exist, is forbidden, or the bus is unavailable.
    """
    found: DeadLetter | None = None
    past = bus.past(STREAM_DEAD, ">", Start(sequence=sequence))
    async with contextlib.aclosing(past) as messages:
        async for message, epoch in messages:
            found = read_dead_letter(message, epoch) if message.sequence == sequence else None
            break
    # The response does not distinguish missing from forbidden dead letters.
    about = dead_letter_object(found, _data(found)) if found is not None else None
    if found is None or about is None or not await permissions.allowed(about.permission):
        raise not_allowed(f"read dead letter {sequence}, or it does not exist")
    page = explain_dead_letter(found, str(sequence)).document()
    return {"dead_letter": full_document(found) | {"about": about.id}, "page": page}


def _data(dead_letter: DeadLetter) -> Mapping[str, Any]:
    """Return the data of the event in a dead letter, empty if it cannot be parsed."""
    with contextlib.suppress(orjson.JSONDecodeError):
        body = orjson.loads(dead_letter.body)
        data = body.get("data") if isinstance(body, dict) else None
        return data if isinstance(data, dict) else {}
    return {}
