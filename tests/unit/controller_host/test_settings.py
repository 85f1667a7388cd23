"""The settings of the service and the messages about mistakes."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from controller_host.settings import Settings
from controller_host.state.disk import check_directory
from trellis.config.settings import SettingsError, load


def loaded(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"TRELLIS_CONTROLLER_{name}", value)
    return load(Settings)


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(
        monkeypatch,
        RESOURCES="v1/ConfigMap, batch/v1/Job,v1/ConfigMap",
        SOURCE_NETWORKS="10.0.0.0/8,fd00::/8",
        MEMORY_BUDGET="2Gi",
    )
    assert settings.controller_resources == ("v1/ConfigMap", "batch/v1/Job")
    assert settings.controller_source_networks == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
    assert settings.controller_memory_budget == 2**31


@pytest.mark.parametrize(
    ("name", "value", "needs"),
    [
        ("RESOURCES", "pods", "v1/ConfigMap or batch/v1/Job"),
        ("RESOURCES", "v1/ConfigMap,v1/Secret", "v1/Secret"),
        ("MEMORY_BUDGET", "much", "512Mi"),
        ("THREADS", "0", "at least 1"),
        ("SOURCE_NETWORKS", "here", "TRELLIS_CONTROLLER_SOURCE_NETWORKS"),
    ],
)
def test_a_mistake_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, needs: str) -> None:
    with pytest.raises(SettingsError, match=needs):
        loaded(monkeypatch, **{name: value})


def test_a_directory_that_cannot_be_used_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"TRELLIS_CONTROLLER_DATA_DIR: .*/file/x\b"):
        check_directory(loaded(monkeypatch, DATA_DIR=str(tmp_path / "file" / "x")))
    good = loaded(monkeypatch, DATA_DIR=str(tmp_path / "a" / "b"))
    check_directory(good)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0
