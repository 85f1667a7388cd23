"""Runs one command of a build: its output goes to a log file, the newest line to the progress display.

In: a command line, its directory, environment and log. Out: its standard output. Called by all builds: Go modules,
crates, Debian packages. Invariant: a build that is asked to stop first ends its command and the child processes of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from trellis_dev.localcluster.errors import AbortedError, ToolError
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Progress, stepping

_TAIL_LINES: Final = 25
_POLL: Final = 0.1

PRIVATE: Final = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--"),
)
"""Prefix for a command that mounts: its mounts and processes end with it, and it ends with this process."""


@dataclass(frozen=True)
class LoggedBuild:
    """Commands of one build. ``hint`` is the remedy in error messages.

    ``grace``: seconds between SIGTERM and SIGKILL.
    """

    directory: Path
    log: Path
    abort: threading.Event
    environment: Mapping[str, str]
    hint: str
    grace: float = 3.0

    def run(self, argv: Sequence[str], on_line: Callable[[str], None] = lambda _: None) -> str:
        """Run a command to its end and return its standard output; ``on_line`` receives the newest line of output.

        Raises:
            ToolError: the command failed; with the last lines of its output and the hint.
            AbortedError: stop was requested.
        """
        output = self.log.with_suffix(".stdout")
        start = self.log.stat().st_size if self.log.exists() else 0
        with output.open("wb") as out, self.log.open("ab") as stderr:
            process = subprocess.Popen(  # noqa: S603 - fixed arguments, no shell
                argv,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=stderr,
                process_group=0,
            )
            try:
                self._watch(process, start, on_line)
            finally:
                if process.poll() is None:
                    _end_group(process, self.grace)
        if process.returncode != 0:
            # Some commands print errors on standard output.
            printed = self._since(start) or output.read_text(encoding="utf-8", errors="replace")
            lines = printed.splitlines()[-_TAIL_LINES:]
            name = " ".join([Path(argv[0]).name, *argv[1:4]])
            raise ToolError(f"`{name} …` failed; the end of {self.log}:\n" + "\n".join(lines) + f"\n{self.hint}")
        answer = output.read_text(encoding="utf-8")
        output.unlink()
        return answer

    def _watch(self, process: subprocess.Popen[bytes], start: int, on_line: Callable[[str], None]) -> None:
        last = ""
        while process.poll() is None:
            if self.abort.is_set():
                raise AbortedError("stop requested during the build")
            lines = self._since(start).splitlines()
            if lines and lines[-1] != last:
                last = lines[-1]
                on_line(last)
            time.sleep(_POLL)

    def _since(self, start: int) -> str:
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 16_384))
            return file.read().decode(errors="replace")


def _end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a command with all its child processes: the compilers of cargo otherwise run on for minutes.

    The grace period is short, because npm ignores SIGTERM while it waits for a registry.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def acquire(lock: FileLock, step: str, progress: Progress, abort: threading.Event) -> None:
    """Acquire the lock of a build; while another process builds, report that and stay stoppable.

    Raises:
        AbortedError: stop was requested.
    """
    reported = False
    while True:
        if abort.is_set():
            raise AbortedError("stop requested while waiting for a build")
        try:
            lock.acquire(timeout=0.5)
        except Timeout:
            if not reported:
                progress.note(step, "another process builds it")
                reported = True
        else:
            return


@dataclass(frozen=True)
class How:
    """Progress display and abort flag of a build."""

    progress: Progress
    abort: threading.Event


def make_once(target: Path, step: str, how: How, make: Callable[[Path, Path], None]) -> Path:
    """Return a file or directory of the cache; build it with ``make(temporary name, log file)`` if it is missing.

    Entries of the cache are complete (temporary name, rename), and concurrent processes build each once (file lock).

    Raises:
        AbortedError: stop was requested; and the errors of ``make``.
    """
    if target.exists():
        return target
    work = cache_root() / "build"
    work.mkdir(parents=True, exist_ok=True)
    lock, log = FileLock(work / f"{target.name}.lock"), work / f"{target.name}.log"
    with stepping(how.progress, step):
        acquire(lock, step, how.progress, how.abort)
        try:
            if not target.exists():
                log.unlink(missing_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary = target.with_name(f".{target.name}.tmp")
                _remove(temporary)  # left by a killed build; the lock excludes other builds
                try:
                    make(temporary, log)
                    temporary.rename(target)
                finally:
                    _remove(temporary)
                log.unlink(missing_ok=True)
        finally:
            lock.release()
    return target


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
