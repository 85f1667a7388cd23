"""Dead letters as JSON.

Pure. In: dead letters. Out: documents. Called by the command line and the console. Invariant: any dead letter can be
written as JSON; passwords in URLs are redacted, except in the body, which is unchanged.
"""

from __future__ import annotations

import base64
from typing import Any

import orjson

from trellis.bus.dead_letters.read import DeadLetter
from trellis.installer_api.redaction import redact_url


def document(dead_letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON, without its body."""
    return {
        "sequence": dead_letter.sequence,
        "time": dead_letter.stored.isoformat(),
        "cluster": _safe(dead_letter.cluster),
        "service": _safe(dead_letter.service),
        "subscription": _safe(dead_letter.subscription),
        "noun": _safe(dead_letter.noun),
        "key": [_safe(name) for name in dead_letter.key],
        "reason": _safe(dead_letter.reason),
        "error": _safe(dead_letter.error),
        "deliveries": dead_letter.deliveries,
        "subject": _safe(dead_letter.subject),
        "stream": _safe(dead_letter.stream),
        "original_sequence": dead_letter.original_sequence,
        "trace_id": dead_letter.trace_id,
        "size": dead_letter.size,
        "truncated": dead_letter.truncated is not None,
        "obstacle": _safe(dead_letter.obstacle),
    }


def full_document(dead_letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON with the original's headers and the body: as JSON, else as text, else in Base64."""
    headers = dead_letter.original_headers
    found = document(dead_letter) | {
        "original_size": dead_letter.size if dead_letter.truncated is None else dead_letter.truncated,
        "headers": None if headers is None else {_safe(name): _safe(value) for name, value in headers.items()},
    }
    if (text := indented(dead_letter.body)) is not None:
        return found | {"body": orjson.loads(text)}
    try:
        return found | {"body_text": dead_letter.body.decode()}
    except UnicodeDecodeError:
        return found | {"body_base64": base64.b64encode(dead_letter.body).decode()}


def indented(body: bytes) -> bytes | None:
    """Return JSON with indentation, or None if the body is not JSON or nested too deeply."""
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None


def _safe(text: str) -> str:
    # A lone surrogate of an escaped name cannot be written as JSON.
    return redact_url(text.encode(errors="backslashreplace").decode())
