"""One release in one registry for all tests: the first one also builds cosign, crane, Helm and the registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.releases.registry import registry
from support.releases.released import Released, make_keys, make_release


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of the registry."""
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="session")
def released(storage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("release")
    with registry(storage) as host:
        yield make_release(f"{host}/team", make_keys(folder / "keys"), folder / "first")
