"""What belongs to one run of this program, whatever it does: settings, a voice, spans, being told to end, timings.

Made by ``command_line`` and tests, used by ``operations`` and ``fetching``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from node_installer.interruption import Interruption
from node_installer.settings import Settings
from node_installer.spans import Tracer
from node_installer.timings import Timings

Say = Callable[[str], None]
"""Tells people what is going on, a line at a time."""


@dataclass(slots=True)
class Session:
    """One run."""

    settings: Settings
    say: Say
    tracer: Tracer
    interruption: Interruption = field(default_factory=Interruption)
    image_root: Path = Path("/")
    timings: Timings = Timings()
