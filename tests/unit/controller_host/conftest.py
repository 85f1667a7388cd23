"""A host on a directory of the test, with one program that records its requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.guests.hosting_world import (
    Recorder,
    World,
)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def world(tmp_path: Path, recorder: Recorder) -> World:
    return World(tmp_path, {b"recorder": recorder, b"other": recorder})
