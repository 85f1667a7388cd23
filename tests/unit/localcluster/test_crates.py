"""Builds from crates, with a cargo that compiles nothing: what it is asked for, and what stays behind."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from trellis_dev.localcluster import lattice_servers
from trellis_dev.localcluster.building import How, LoggedBuild
from trellis_dev.localcluster.errors import AbortedError, ToolError
from trellis_dev.localcluster.progress import Quiet

SOURCE = 'source = "registry+that of this machine"'
CARGO = f"""#!/bin/sh
echo "$@" >> {{log}}
case "$1" in
generate-lockfile) printf '[[package]]\\nname = "anyhow"\\n%s\\n' '{SOURCE}' > "$(dirname "$3")/Cargo.lock" ;;
build) cp Cargo.lock {{log}}.lock && {{build}} ;;
esac
"""
MAKES_BOTH = (
    'mkdir -p "$CARGO_TARGET_DIR/debug" && cd "$CARGO_TARGET_DIR/debug" && echo 1 >wadm && echo 2 >wasmcloud-host'
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    return tmp_path / "cache/trellis"


def cargo(directory: Path, build: str) -> Path:
    """Put a cargo on the PATH; return the file that says how it was called."""
    log = directory / "calls"
    for name, text in {"cargo": CARGO.format(log=log, build=build), "cc": "#!/bin/sh\n"}.items():
        program = directory / "path" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return log


def how() -> How:
    return How(Quiet(), threading.Event())


def test_both_are_built_from_the_lock_once_and_the_build_is_removed(cache: Path, tmp_path: Path) -> None:
    log = cargo(tmp_path, MAKES_BOTH)
    programs = lattice_servers.lattice_servers(how())
    assert {name: path.read_text() for name, path in programs.items()} == {"wadm": "1\n", "wasmcloud-host": "2\n"}
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["generate-lockfile", "build"]
    assert log.read_text().splitlines()[1] == "build --locked --bins"
    used = Path(f"{log}.lock").read_text()
    assert used.count("checksum = ") == used.count(SOURCE) > 600
    assert [path.name for path in (cache / "build").iterdir() if path.suffix != ".lock"] == []
    assert lattice_servers.lattice_servers(how()) == programs
    assert len(log.read_text().splitlines()) == 2


BROKEN = "it does not compile"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (f"echo {BROKEN} >&2; exit 101", f"(?s)cargo build --locked.*{BROKEN}"),
        (MAKES_BOTH.partition(" && echo 2")[0], "wasmcloud-host"),
    ],
    ids=["it does not compile", "one is missing"],
)
def test_a_build_that_fails_leaves_nothing_that_looks_built(
    cache: Path, tmp_path: Path, build: str, message: str
) -> None:
    cargo(tmp_path, build)
    with pytest.raises((ToolError, FileNotFoundError), match=message):
        lattice_servers.lattice_servers(how())
    assert list((cache / "bin").iterdir()) == []
    assert not list((cache / "build").glob("*.work"))


@pytest.mark.parametrize(
    ("deaf", "grace"), [("", 60.0), ("trap '' TERM; ", 0.1)], ids=["", "a command that hears no SIGTERM"]
)
def test_processes_started_by_a_command_end_with_it_when_the_build_is_aborted(
    tmp_path: Path, deaf: str, grace: float
) -> None:
    abort = threading.Event()
    build = LoggedBuild(tmp_path, tmp_path / "log", abort, dict(os.environ), "", grace)
    noted: list[BaseException] = []

    def run() -> None:
        try:
            build.run(["/bin/sh", "-c", f"{deaf}sleep 600 & echo $! > pid.tmp; mv pid.tmp pid; wait"])
        except AbortedError as error:
            noted.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    compiler = psutil.Process(int((tmp_path / "pid").read_text()))
    try:
        abort.set()
        thread.join(timeout=30)
        assert len(noted) == 1
        assert ended(compiler, 20), "what the command started runs on"
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            compiler.kill()


def ended(process: psutil.Process, seconds: float) -> bool:
    """Wait for a process to end; one that ended and that its adopter has not yet buried has."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True
