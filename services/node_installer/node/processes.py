"""The node's processes: lists them, finds those of a program to remove, and ends them.

In: the node's ``/proc`` below ``--node-root``. Out: :class:`Process` records, and signals. Called by ``gather`` and
``effects``.
Source: a Wasm shim is a program of the node, and with runwasi so are the containers it runs: both have its executable.
runwasi's ``delete`` waits for a reader of the shim's log without a timeout, and a containerd that starts waits for it,
so no shim may have died when containerd starts: signals are sent only while it runs and is not about to be restarted
(observed with containerd 2.4 and containerd-shimkit 0.1). :func:`cleanups_bounded` handles a shim that died by itself.
Invariants: a process is signalled only if its executable is the file itself, or was before the file was replaced or
removed; this is checked again while a pidfd holds it, so that a reused PID is never hit; every wait has a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from node_installer.domain.process import Process
from node_installer.node.disk import Disk
from node_installer.timings import EndingTimings
from trellis.installer_api.result import EndedProcess

_DELETED: Final = " (deleted)"
_ENDED: Final = frozenset("ZXx")
_NAME_CHARACTERS: Final = 15  # TASK_COMM_LEN without its end


@dataclass(frozen=True, slots=True)
class Ending:
    """Result of ending processes: those that ended, and messages about those that did not."""

    ended: tuple[EndedProcess, ...] = ()
    left: tuple[str, ...] = ()


def listed(disk: Disk) -> Iterator[Process]:
    """Yield the node's processes, without those that end in the meantime."""
    folder = disk.root / "proc"
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isdigit() and (process := _read(entry)) is not None:
            yield process


def running(disk: Disk, path: str, processes: Sequence[Process]) -> tuple[Process, ...]:
    """Return the processes whose executable is certainly a file of the node: path and file must agree.

    A path alone is not sufficient: a container has paths of its own, and its programs do not belong to Trellis.
    """
    real = disk.real(path)
    # As the node sees it, and as it is seen from here: a root without a mount namespace of its own has such paths.
    names = {"/" + str(real.relative_to(disk.root)), os.path.realpath(real)}
    return tuple(process for process in processes if process.executable in names and _is_file(disk, process, real))


def end(
    disk: Disk,
    paths: Sequence[str],
    stop: Callable[[Sequence[str]], None],
    *,
    signals: bool,
    timings: EndingTimings = EndingTimings(),
) -> Ending:
    """End all processes of these files: by the runtime, then by SIGTERM, after a while by SIGKILL.

    This includes processes that start in the meantime. A shim's own ``delete`` gets time to complete, because the
    runtime uses it to clean up after a shim that ended; if it hangs, it is killed with the rest.

    Args:
        disk: that of the node.
        paths: of the node; former files at these paths count, too.
        stop: stops pods by the runtime, given the IDs in the arguments of shims.
        signals: whether processes are signalled; if not, those that the runtime stops have the time of SIGTERM to end.
        timings: the waits after each signal.
    """
    work = _Work(disk, paths, timings)
    groups = tuple(dict.fromkeys(process.group for process in work.there() if process.group))
    if groups:
        stop(groups)
    if not signals:
        if groups:
            work.send(None, timings.term)
        return replace(work.ending(), left=())
    if not _same_pids(disk):
        work.refuse("the installer's pod needs hostPID to end it")
    elif not work.send(signal.SIGTERM, timings.term):
        work.send(signal.SIGKILL, timings.kill)
    return work.ending()


@contextmanager
def cleanups_bounded(disk: Disk, paths: Sequence[str], timings: EndingTimings = EndingTimings()) -> Iterator[None]:
    """While the block runs, kill a shim's ``delete`` that exceeds its timeout.

    For a runtime that restarts: containerd allows it 5 s, kills it and then waits for its children without a timeout.
    """
    over = threading.Event()
    thread = threading.Thread(target=_bound_cleanups, args=(_Work(disk, paths, timings), over), daemon=True)
    if _same_pids(disk):
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


def _bound_cleanups(work: _Work, over: threading.Event) -> None:
    since: dict[tuple[int, int], float] = {}
    while not over.wait(work.timings.watch):
        now = time.monotonic()
        for process in work.there():
            if process.cleans_up and now - since.setdefault(process.key, now) >= work.timings.cleanup:
                work.send_to(process, signal.SIGKILL)


@dataclass(slots=True)
class _Work:
    disk: Disk
    paths: Sequence[str]
    timings: EndingTimings
    seen: dict[tuple[int, int], Process] = field(default_factory=dict)
    killed: set[tuple[int, int]] = field(default_factory=set)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)

    def there(self) -> list[Process]:
        """Return the present processes of the files."""
        processes = tuple(listed(self.disk))
        found = [process for path in self.paths for process in running(self.disk, path, processes)]
        self.seen |= {process.key: process for process in found if not process.cleans_up}
        return found

    def send(self, number: signal.Signals | None, seconds: float) -> bool:
        """Send a signal, if any, to each process once; True when none is left, False at the timeout."""
        deadline = time.monotonic() + seconds
        signalled: set[tuple[int, int]] = set()
        while processes := self.there():
            for process in processes:
                spared = process.cleans_up and number != signal.SIGKILL
                if number is not None and process.key not in signalled and not spared:
                    signalled.add(process.key)
                    self.send_to(process, number)
            if time.monotonic() >= deadline:
                return False
            time.sleep(self.timings.poll)
        return True

    def refuse(self, reason: str) -> None:
        """Record for all present processes why they were not ended."""
        self.refused |= {process.key: f"still runs: {reason}" for process in self.there()}

    def ending(self) -> Ending:
        """Return the result for all processes that were found."""
        left = {process.key: process for process in self.there()}
        alive = {process.key for process in listed(self.disk)}
        ended = (
            EndedProcess(process.pid, process.name, key in self.killed)
            for key, process in sorted(self.seen.items())
            if key not in alive
        )
        waited = self.timings.term + self.timings.kill
        hangs = f"still runs {waited:g} s after SIGTERM and SIGKILL: check its disk and network"
        texts = (f"{_shown(process)} {self.refused.get(key, hangs)}" for key, process in sorted(left.items()))
        return Ending(tuple(ended), tuple(texts))

    def send_to(self, process: Process, number: signal.Signals) -> None:
        """Send a signal to a process if it still runs one of the files."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            self._note(process, error)
            return
        try:
            # The descriptor holds the process that has this PID now; only now is its executable certain.
            current = _read(self.disk.root / "proc" / str(process.pid))
            if current is None or not any(running(self.disk, path, (current,)) for path in self.paths):
                return
            signal.pidfd_send_signal(descriptor, number)
            if number == signal.SIGKILL:
                self.killed.add(current.key)
        except OSError as error:
            self._note(process, error)
        finally:
            os.close(descriptor)

    def _note(self, process: Process, error: OSError) -> None:
        if error.errno == errno.ENOSYS:
            self.refused[process.key] = "still runs: this kernel does not support pidfd_open"
        elif error.errno != errno.ESRCH:
            self.refused[process.key] = f"still runs: {error.strerror}"


def _read(folder: Path) -> Process | None:
    """Return the process of a folder of ``/proc``, None if it ended."""
    try:
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    executable = ""
    with contextlib.suppress(OSError):  # a kernel thread, a zombie, or a process that may not be read
        executable = str((folder / "exe").readlink())
    status = _status_of(folder)
    if status is None:
        return None
    deleted = executable.endswith(_DELETED)
    return Process(int(folder.name), status[0], executable.removesuffix(_DELETED), tuple(arguments), status[1], deleted)


def _status_of(folder: Path) -> tuple[str, int] | None:
    """Return a process' own name in printable characters, and its start in ticks; None if it ended. Source: proc(5).

    A process that ended, but for which its parent did not wait yet, is still listed as a zombie.
    """
    try:
        text = (folder / "stat").read_bytes().decode(errors="replace")
    except OSError:
        return "", 0  # it is ending, and is read again before any effect
    head, _, rest = text.rpartition(")")  # a name may have brackets and blanks of its own
    name = "".join(letter for letter in head.partition("(")[2] if letter.isprintable())[:_NAME_CHARACTERS]
    state, *fields = rest.split() or [""]
    if state in _ENDED:
        return None
    return name, int(fields[18]) if len(fields) > 18 else 0


def _is_file(disk: Disk, process: Process, real: Path) -> bool:
    try:
        runs = (disk.root / "proc" / str(process.pid) / "exe").stat()
    except OSError:
        return False
    there = _status(real)
    if not process.deleted:
        return there is not None and os.path.samestat(runs, there)
    # Of a deleted executable, only the file system can be compared.
    near = _status(real.parent)
    return runs.st_dev in {status.st_dev for status in (there, near) if status is not None}


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _same_pids(disk: Disk) -> bool:
    """Return whether the PIDs of the node are valid in this process.

    ``/proc`` lists the PIDs of a process from its namespace to the present one.
    """
    with contextlib.suppress(OSError):
        for line in (disk.root / "proc/self/status").read_text(encoding="utf-8").splitlines():
            name, _, numbers = line.partition(":")
            if name == "NSpid":
                return len(numbers.split()) == 1
    return False


def _shown(process: Process) -> str:
    return f"process {process.pid} ({process.name or 'without a name'}) of {process.executable}"
