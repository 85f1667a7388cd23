"""Logging as it was before, after each test."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("OTEL_") or name in {"NO_COLOR", "TERM"}:
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in root.manager.loggerDict}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in root.manager.loggerDict:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
