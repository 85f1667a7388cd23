"""The context of one run of this program: settings, output, spans, interruption, timings.

Created by ``command_line`` and tests, used by ``operations`` and ``fetching``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from node_installer.interruption import Interruption
from node_installer.settings import Settings
from node_installer.spans import Tracer
from node_installer.timings import Timings

ReportProgress = Callable[[str], None]
"""Prints one line about the progress of the run."""


@dataclass(slots=True)
class Session:
    """Context of one run."""

    settings: Settings
    report_progress: ReportProgress
    tracer: Tracer
    interruption: Interruption = field(default_factory=Interruption)
    image_root: Path = Path("/")
    timings: Timings = Timings()
