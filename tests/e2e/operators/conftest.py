"""Fixtures for tests with other operators: the operators, and time, because the first test builds them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.examples.example_worlds import hello, kubectl
from support.operators.operator_processes import Operators
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

__all__ = ["hello", "kubectl"]


@pytest.fixture
def operators(cluster: ClusterInfo, cluster_api: Api, tmp_path: Path) -> Iterator[Operators]:
    """Provide the operators of the examples; their output is shown with a test that fails."""
    with Operators(cluster, cluster_api, tmp_path / "operators") as made:
        yield made
        sys.stderr.write(made.output())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(3600))  # the first one builds
