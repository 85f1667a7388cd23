"""A unit test fails if it leaves a resource open."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def young_garbage_collected() -> Iterator[None]:
    """Collect the young garbage last, so that the warning of an unclosed connection is this test's, not a later one's.

    The oldest generation, which takes 40 ms, is left to Python.
    """
    yield
    gc.collect(1)
