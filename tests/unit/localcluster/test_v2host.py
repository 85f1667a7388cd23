"""The wasmCloud v2 host of tests, as far as nothing has to be built and no server to run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.suite.naming import lacking
from trellis_dev.localcluster import v2host
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.crates import source_file
from trellis_dev.localcluster.errors import StartError, ToolError
from trellis_dev.localcluster.progress import Quiet
from trellis_dev.localcluster.v2host import V2Host, V2HostOptions

STARTED = '2026-11-24T11:13:08.858904Z  INFO trellis_v2_host: Host started host_id="{}" friendly_name="calm-elm-0001"'
OPTIONS = V2HostOptions(nats_url="nats://127.0.0.1:1", host_group="edge", environment="apps", heartbeat=0.5)


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("without_programs")
def test_without_rust_the_missing_programs_are_named() -> None:
    assert lacking(v2host.missing(), "v2", "cargo, cc") == []
    with pytest.raises(ToolError, match=r"\bcargo, cc\b"):
        v2host.v2_host(How(Quiet(), threading.Event()))


@pytest.mark.usefixtures("without_programs")
def test_built_host_needs_no_programs() -> None:
    path = v2host._path()
    path.parent.mkdir(parents=True)
    path.touch()
    assert v2host.missing() is None
    assert v2host.v2_host(How(Quiet(), threading.Event())) == path


def test_digest_covers_all_sources() -> None:
    project = source_file("v2host")
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert files == set(v2host._SOURCES)


def program(directory: Path, *commands: str) -> Path:
    """Return a program that runs these commands."""
    path = directory / "host"
    path.write_text("\n".join(["#!/bin/sh", *commands]) + "\n")
    path.chmod(0o755)
    return path


def test_host_has_its_identity_and_options_from_start_to_end(tmp_path: Path) -> None:
    text = STARTED.format("id-$$")
    fake = program(
        tmp_path, f'echo "$@" >{tmp_path}/options', f"echo {text.replace(chr(34), chr(92) + chr(34))}", "exec sleep 60"
    )
    with V2Host(fake, tmp_path / "host-0", OPTIONS) as host:
        options = (tmp_path / "options").read_text().split(" --")
        assert {"host-group edge", "environment apps", "heartbeat 0.5"} <= set(options)
        assert {f"http-addr 127.0.0.1:{host.port}", "host-name 127.0.0.1"} <= set(options)
        assert (host.runs, host.friendly_name) == (True, "calm-elm-0001")
        first, port = host.id, host.port
        host.stop()
        assert not host.runs
        host.start()
        assert (host.runs, host.port) == (True, port)
        assert host.id != first
        host.kill()
        assert not host.runs
    assert not (tmp_path / "host-0").exists()


def test_host_that_cannot_start_fails_with_its_log(tmp_path: Path) -> None:
    fake = program(tmp_path, "echo cannot connect to NATS", "exit 1")
    with pytest.raises(StartError, match="cannot connect to NATS"), V2Host(fake, tmp_path / "host-0", OPTIONS):
        pytest.fail("it started")
    assert not (tmp_path / "host-0").exists()
