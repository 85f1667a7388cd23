"""Find the values that tests of secrets plant in all output while they run.

In: what came out. Out: its forbidden parts. Called by the tests' conftest after each test, and by what runs commands.
Planted are the values that tests put into Secrets, in plain and as the API server has them; the seeds of curve keys;
the tokens of hosts and components. Invariant: what is found is named without being shown.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VALUE: Final = "hunter2"
"""The value of a Secret, where a test needs no other."""
_VALUES: Final = {"a value": VALUE, "a value of the conformance cases": "p4ss-w0rd"}
_FORBIDDEN: Final = {
    **{what: re.compile(re.escape(value.encode())) for what, value in _VALUES.items()},
    **{f"{what} in base64": re.compile(base64.b64encode(value.encode())[:-4]) for what, value in _VALUES.items()},
    **{f"{what} in hex": re.compile(value.encode().hex().encode()) for what, value in _VALUES.items()},
    "the seed of a curve key": re.compile(rb"SX[A-Z2-7]{56}"),
    "a token": re.compile(rb"eyJ0eXAiOi(?:Aiand0|Jqd3Qi)[\w-]*\.[\w-]+"),
}
_OUTPUT: Final = ("*.log", "log", "*.blk")
"""Logs of processes; and where NATS keeps messages, as they are."""


def found_in(content: bytes) -> list[str]:
    """Return the forbidden parts of it, with the words before them."""
    hits = ((what, item.search(content)) for what, item in _FORBIDDEN.items())
    return [
        f"{what}, after {content[max(0, hit.start() - 80) : hit.start()]!r}" for what, hit in hits if hit is not None
    ]


def outputs(folder: Path, since: float) -> Iterator[Path]:
    """Yield the files below a folder that output of processes went to, or messages, after a time since 1970."""
    for pattern in _OUTPUT:
        yield from (path for path in folder.rglob(pattern) if path.is_file() and path.stat().st_mtime >= since)
