"""Messages of a stream of server-sent events, none of them large.

Pure. In: differences, events. Out: text as the HTML standard has it for ``text/event-stream``. Called by ``streaming``.
Invariants: no data has a line break of its own; all messages of a difference but the last say that more comes, and only
the last has an id, so that a page that is cut off in between asks for all of it again.
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
    body = orjson.dumps(data)  # which has no line breaks outside of strings, and escapes those in them
    head = f"event: {event}\n".encode()
    tail = f"id: {id_}\n".encode() if id_ else b""
    return head + tail + b"data: " + body + b"\n\n"


def mark(epoch: str, revision: int) -> str:
    """Return the id of a message, by which a page that comes back says what it has."""
    return f"{epoch}.{revision}"


def read_mark(text: str) -> tuple[str, int] | None:
    """Return epoch and revision of such an id, None if it is none."""
    found = _ID.fullmatch(text)
    revision = whole(found[2]) if found else None
    return (found[1], revision) if found and revision is not None else None


def delta_messages(epoch: str, delta: Delta, most: int) -> Iterator[bytes]:
    """Yield the messages of a difference, each of about ``most`` bytes of entities at most, or of one entity."""
    bundle: dict[str, Any] = {}
    size = 0
    gone = list(delta.gone)
    for id_, entity in delta.changed.items():
        length = len(orjson.dumps(entity)) + len(orjson.dumps(id_))
        if bundle and size + length > most:
            yield _delta(delta, bundle, [], more=True)
            bundle, size = {}, 0
        bundle[id_] = entity
        size += length
    yield _delta(delta, bundle, gone, more=False, id_=mark(epoch, delta.revision))


def _delta(delta: Delta, changed: dict[str, Any], gone: list[str], *, more: bool, id_: str = "") -> bytes:
    return message("delta", {"revision": delta.revision, "set": changed, "gone": gone, "more": more}, id_)
