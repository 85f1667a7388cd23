"""A NATS server is reloaded once for each change of its certificates, and for nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.suite.naming import lacking
from trellis.bus.accounts.reloader import Reloader

RELOADED = "sent a reload signal to the NATS server"


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """This process stands for the server."""
    signals: list[int] = []
    former = signal.signal(signal.SIGHUP, lambda number, _: signals.append(number))
    yield signals
    signal.signal(signal.SIGHUP, former)


class Mounted:
    """A Secret as the kubelet mounts it: names that lead through a link to the files of now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "tls"
        self.directory.mkdir()
        self.versions = 0
        for name in ("tls.crt", "tls.key"):
            (self.directory / name).symlink_to(f"..data/{name}")

    def put(self, certificate: str) -> None:
        self.versions += 1
        version = self.directory / f"..{self.versions}"
        version.mkdir()
        for name in ("tls.crt", "tls.key"):
            (version / name).write_text(f"{name} of {certificate}")
        fresh = self.directory / "..fresh"
        fresh.symlink_to(version.name)
        fresh.replace(self.directory / "..data")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    made = Mounted(tmp_path)
    made.put("first")
    return made


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    path = tmp_path / "nats.pid"
    path.write_text(str(os.getpid()))
    return path


def test_each_certificate_is_logged_at_start_and_on_renewal_once(
    mounted: Mounted, pid_file: Path, signals: list[int]
) -> None:
    reloader = Reloader(mounted.directory, pid_file)
    assert [reloader.look(), reloader.look()] == [RELOADED, ""]
    mounted.put("first")
    assert reloader.look() == "", "other files with the same content"
    mounted.put("second")
    assert [reloader.look(), reloader.look()] == [RELOADED, ""]
    assert signals == [signal.SIGHUP, signal.SIGHUP]


@pytest.mark.parametrize("content", [None, "", "nonsense", "4194304999"], ids=["none", "empty", "nonsense", "nobody's"])
def test_a_server_that_is_not_up_yet_is_notified_later(
    mounted: Mounted, pid_file: Path, signals: list[int], content: str | None
) -> None:
    reloader = Reloader(mounted.directory, pid_file)
    pid_file.unlink() if content is None else pid_file.write_text(content)
    result = reloader.look()
    assert (lacking(result, str(pid_file)), signals) == ([], [])
    pid_file.write_text(str(os.getpid()))
    assert reloader.look() == RELOADED
    assert signals == [signal.SIGHUP]


def test_certificates_that_cannot_be_read_are_reported_and_waited_for(tmp_path: Path, pid_file: Path) -> None:
    missing = tmp_path / "missing"
    assert lacking(Reloader(missing, pid_file).look(), str(missing), "No such file or directory") == []
