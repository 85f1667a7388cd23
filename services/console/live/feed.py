"""Buffer of messages of the bus, and the filters of pages.

Pure, with state. In: events, forwarded lattice events, dead letters. Out: items in the order of arrival. Written by
``bus_connection``, read by routes. Invariants: the buffer is bounded in number and bytes; a body that is too long is
omitted and marked; an item names the permission that it requires, and is sent only to viewers with it.
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from console.access.permissions import Permission
from console.domain.limits import EVENT_BYTES, EVENTS_BYTES, EVENTS_KEPT
from console.http.refusals import bad
from console.live.about import OF_LATTICES, OF_OBJECTS, About, about_event, dead_letter_object
from trellis.bus.dead_letters.read import DeadLetter
from trellis.bus.streams.tail import TailedEvent
from trellis.events.subjects import ROOT_LATTICE
from trellis.read_model.live.live_model import ChangeSignal
from trellis.read_model.reading.dead_letters import document

EVENTS: Final = "events"
LATTICE: Final = "lattice"
DEAD_LETTERS: Final = "dead-letters"
STREAMS: Final = (EVENTS, LATTICE, DEAD_LETTERS)
_TYPE: Final = re.compile(r"[A-Za-z0-9_.*-]{1,64}")
_TRACE: Final = re.compile(r"[0-9a-f]{8,32}")
_TYPES_MOST: Final = 40
_NAME_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class Item:
    """One message. ``index``: its position in the feed; ``document``: the content for pages."""

    index: int
    stream: str
    type: str
    about: About
    trace: str
    document: Mapping[str, Any]
    size: int


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of items; an empty field matches all. ``types``: ``node.ready``, ``node.*``; ``object``: an entity's id.

    ``lattice``: that of a forwarded event, or the one in the data of an event.
    """

    streams: frozenset[str] = frozenset(STREAMS)
    types: tuple[str, ...] = ()
    namespace: str = ""
    object: str = ""
    lattice: str = ""
    trace: str = ""

    def wants(self, item: Item) -> bool:
        """Return whether an item matches."""
        about = item.about
        return (
            item.stream in self.streams
            and (not self.types or any(_is_of(item.type, entry) for entry in self.types))
            and self.namespace in {"", about.namespace}
            and self.object in {"", about.id}
            and self.lattice in {"", about.lattice}
            and item.trace.startswith(self.trace)
        )


def read_filter(query: Mapping[str, str]) -> Filter:
    """Return the filter of a query; raises RefusedError for an invalid one."""
    streams = frozenset(_listed(query.get("streams", ""))) or frozenset(STREAMS)
    if not streams <= {*STREAMS}:
        raise bad(f"streams has {min(streams - {*STREAMS})!r}", f"use some of: {', '.join(STREAMS)}")
    types = tuple(_listed(query.get("types", "")))
    if len(types) > _TYPES_MOST or not all(map(_TYPE.fullmatch, types)):
        raise bad("invalid types", "use types such as node.ready or node.*, separated by commas")
    trace = query.get("trace", "").lower()
    if trace and not _TRACE.fullmatch(trace):
        raise bad("invalid trace", "use at least the first 8 of 32 hex digits")
    named = {name: query.get(name, "") for name in ("namespace", "object", "lattice")}
    if any(len(value) > _NAME_MOST for value in named.values()):
        raise bad("a name is too long", f"use at most {_NAME_MOST} characters")
    return Filter(streams, types, named["namespace"], named["object"], named["lattice"], trace)


def item_of(event: TailedEvent, index: int = 0) -> Item:
    """Return the item of an event, or of a forwarded lattice event."""
    about = about_event(event)
    stream = LATTICE if event.subject.startswith(f"{ROOT_LATTICE}.") else EVENTS
    kind = event.event_name if stream == LATTICE else f"{event.noun}.{event.event_name}"
    data, size = event.event.get("data"), 0
    if data is not None:
        size = len(orjson.dumps(data))
    shown: dict[str, Any] = {
        "stream": stream,
        "sequence": event.sequence,
        "time": event.stored.isoformat(),
        "type": kind,
        "about": about.id,
        "namespace": about.namespace or None,
        "name": about.name or None,
        "lattice": about.lattice or None,
        "source": _text(event.event.get("source")).rpartition("/")[2] or None,
        "trace": event.trace_id or None,
        "data": data if size <= EVENT_BYTES else None,
        "cut": size > EVENT_BYTES,
        "unreadable": not event.event,
    }
    return Item(index, stream, kind, about, event.trace_id, shown, min(size, EVENT_BYTES) + 512)


def dead_letter_item(dead_letter: DeadLetter, index: int = 0) -> Item:
    """Return the item of a dead letter, without its body."""
    about, kind = dead_letter_object(dead_letter), f"dead_letter.{dead_letter.noun}"
    shown = document(dead_letter) | {
        "stream": DEAD_LETTERS,
        "type": kind,
        "about": about.id,
        "name": about.name or None,
        "namespace": about.namespace or None,
        "lattice": None,
        "trace": dead_letter.trace_id or None,
    }
    return Item(index, DEAD_LETTERS, kind, about, dead_letter.trace_id, shown, len(dead_letter.error) + 1024)


@dataclass(eq=False)
class Feed:
    """The last items. ``epoch``: distinguishes these indexes from those of another process."""

    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    changes: ChangeSignal = field(default_factory=ChangeSignal)
    newest: int = 0
    """Index of the newest item, including dropped ones."""
    _items: deque[Item] = field(default_factory=deque)
    _bytes: int = 0

    def add(self, item: Item) -> None:
        """Append an item; drop the oldest ones beyond the limits."""
        self.newest = item.index
        self._items.append(item)
        self._bytes += item.size
        while len(self._items) > EVENTS_KEPT or self._bytes > EVENTS_BYTES:
            self._bytes -= self._items.popleft().size
        self.changes.notify()

    def after(self, index: int) -> tuple[list[Item], bool]:
        """Return the items after an index, and whether some were dropped in between."""
        first = self._items[0].index if self._items else self.newest + 1
        found: list[Item] = []
        for item in reversed(self._items):
            if item.index <= index:
                break
            found.append(item)
        return found[::-1], index + 1 < first

    def last(self, wanted: Filter, count: int) -> int:
        """Return the index before the last items that match a filter."""
        for item in reversed(self._items):
            if count == 0:
                return item.index
            count -= wanted.wants(item)
        return 0 if count or not self._items else self._items[0].index - 1


def permissions_of(streams: Collection[str]) -> tuple[Permission, ...]:
    """Return the permissions that show all messages of these streams."""
    objects = OF_OBJECTS if {EVENTS, DEAD_LETTERS} & {*streams} else ()
    return (*objects, *(OF_LATTICES if LATTICE in streams else ()))


def stored_since(text: str) -> datetime | None:
    """Return the time of a query, None for none; raises RefusedError for an invalid one."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))  # an unescaped plus
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise bad("invalid time", "use RFC 3339 with a time zone, as 2026-01-31T08:00:00Z")
    return found


def _listed(text: str) -> list[str]:
    return [part for part in (item.strip() for item in text.split(",")) if part]


def _is_of(kind: str, wanted: str) -> bool:
    if wanted.endswith("*"):
        return kind.startswith(wanted[:-1])
    return kind == wanted or kind.startswith(f"{wanted}.")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
