"""Messages of a stream of server-sent events, of limited size.

Pure. In: differences, events. Out: text in the format ``text/event-stream`` of the HTML standard. Called by
``streaming``. Invariants: data has no line breaks; all messages of a difference except the last announce more, and only
the last has an id, so that a page that is disconnected in between requests all of it again.
Source: HTML standard, "Server-sent events": fields ``event``, ``data``, ``id``; a line with a colon first is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from trellis.installer_api.parse_int import whole
from trellis.read_model.entities.journal import Delta

HEARTBEAT: Final = b": still here\n\n"
_ID: Final = re.compile(r"([0-9a-f]{1,32})\.([0-9]{1,16})")


def message(event: str, data: object, id_: str = "") -> bytes:
    """Return one message."""
    body = orjson.dumps(data)  # no line breaks outside of strings; those in strings are escaped
    head = f"event: {event}\n".encode()
    tail = f"id: {id_}\n".encode() if id_ else b""
    return head + tail + b"data: " + body + b"\n\n"


def message_id(epoch: str, revision: int) -> str:
    """Return the id of a message, with which a page resumes the stream after a reconnect."""
    return f"{epoch}.{revision}"


def parse_message_id(text: str) -> tuple[str, int] | None:
    """Return epoch and revision of an id, None if it is invalid."""
    found = _ID.fullmatch(text)
    revision = whole(found[2]) if found else None
    return (found[1], revision) if found and revision is not None else None


def delta_messages(epoch: str, delta: Delta, most: int) -> Iterator[bytes]:
    """Yield the messages of a difference, each with one entity, or with about ``most`` bytes of entities."""
    bundle: dict[str, Any] = {}
    size = 0
    deleted = list(delta.deleted)
    for id_, entity in delta.changed.items():
        length = len(orjson.dumps(entity)) + len(orjson.dumps(id_))
        if bundle and size + length > most:
            yield _delta(delta, bundle, [], more=True)
            bundle, size = {}, 0
        bundle[id_] = entity
        size += length
    yield _delta(delta, bundle, deleted, more=False, id_=message_id(epoch, delta.revision))


def _delta(delta: Delta, changed: dict[str, Any], deleted: list[str], *, more: bool, id_: str = "") -> bytes:
    return message("delta", {"revision": delta.revision, "set": changed, "deleted": deleted, "more": more}, id_)
