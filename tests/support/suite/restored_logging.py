"""A pytest plugin: logging is after each test as it was before.

Commands that a test calls in this process set the level and the handlers of the root logger. Without this, a later test
of the same worker would miss the warnings that it expects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Restore handlers, levels, the capture of warnings and the configuration of structlog."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], _levels()
    configured = structlog.get_config() if structlog.is_configured() else None
    yield
    root.handlers[:] = handlers
    for logger, level in _levels().items():
        if level != (former := levels.get(logger, logging.NOTSET)):
            logger.setLevel(former)
    logging.captureWarnings(capture=False)
    structlog.contextvars.clear_contextvars()
    if configured is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**configured)


def _levels() -> dict[logging.Logger, int]:
    root = logging.getLogger()
    named = [logger for logger in root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    return {logger: logger.level for logger in (root, *named)}
