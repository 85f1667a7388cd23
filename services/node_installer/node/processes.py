"""The node's processes: which there are, which run a program that is to go, and their end.

In: the node's ``/proc`` below ``--node-root``. Out: :class:`Process` records, and signals. Called by ``gather`` and
``effects``.
Source: a Wasm shim is a program of the node, and with runwasi so are the containers it runs: both have its executable.
runwasi's ``delete`` waits for a reader of the shim's log forever, and a containerd that starts waits for it, so no
shim may have died when containerd starts: signals are for a time when it runs, and is not about to be restarted (seen
with containerd 2.4 and containerd-shimkit 0.1). One that died by itself is what :func:`cleanups_bounded` is for.
Invariants: a process is signalled only if its executable is the very file, or was it before that was replaced or
removed; looked up once more while a pidfd holds it, so that a pid used again is never hit; nothing waits without bound.
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
    """What came of ending processes: those that ended, and sentences about those that did not."""

    ended: tuple[EndedProcess, ...] = ()
    left: tuple[str, ...] = ()


def listed(disk: Disk) -> Iterator[Process]:
    """Yield the node's processes. Those that end in the meantime are left out."""
    folder = disk.root / "proc"
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isdigit() and (process := _read(entry)) is not None:
            yield process


def running(disk: Disk, path: str, processes: Sequence[Process]) -> tuple[Process, ...]:
    """Return the processes whose executable is a file of the node for certain; path and file must agree.

    A path alone is not enough: a container has paths of its own, and its programs are none of Trellis.
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
    """End all that runs one of these files: by the runtime, then by SIGTERM, after a while by SIGKILL.

    Also what is started in the meantime. A shim's own ``delete`` is given the time to do its work, for the runtime
    cleans up with it behind a shim that ended; what of it hangs is killed with the rest.

    Args:
        disk: the node's.
        paths: of the node; what was there before in their place counts, too.
        stop: has the runtime stop pods, by the ids that shims say they are for.
        signals: whether anything is signalled; if not, what the runtime was told to end has the time of SIGTERM to end.
        timings: how long is waited after each signal.
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
    """While the block runs, kill a shim's ``delete`` that takes longer than it may.

    For a runtime that restarts: containerd allows it 5 s, kills it and then waits for what it started, forever.
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
                work.tell(process, signal.SIGKILL)


@dataclass(slots=True)
class _Work:
    disk: Disk
    paths: Sequence[str]
    timings: EndingTimings
    seen: dict[tuple[int, int], Process] = field(default_factory=dict)
    killed: set[tuple[int, int]] = field(default_factory=set)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)

    def there(self) -> list[Process]:
        """Return what runs the files now."""
        processes = tuple(listed(self.disk))
        found = [process for path in self.paths for process in running(self.disk, path, processes)]
        self.seen |= {process.key: process for process in found if not process.cleans_up}
        return found

    def send(self, number: signal.Signals | None, seconds: float) -> bool:
        """Send a signal, if any, to each process once; True when none is left, False when the time is over."""
        deadline = time.monotonic() + seconds
        told: set[tuple[int, int]] = set()
        while processes := self.there():
            for process in processes:
                spared = process.cleans_up and number != signal.SIGKILL
                if number is not None and process.key not in told and not spared:
                    told.add(process.key)
                    self.tell(process, number)
            if time.monotonic() >= deadline:
                return False
            time.sleep(self.timings.poll)
        return True

    def refuse(self, why: str) -> None:
        """Say of all that is there why it was left alone."""
        self.refused |= {process.key: f"still runs: {why}" for process in self.there()}

    def ending(self) -> Ending:
        """Return what became of all that was seen."""
        left = {process.key: process for process in self.there()}
        alive = {process.key for process in listed(self.disk)}
        ended = (
            EndedProcess(process.pid, process.name, key in self.killed)
            for key, process in sorted(self.seen.items())
            if key not in alive
        )
        waited = self.timings.term + self.timings.kill
        hangs = f"still runs {waited:g} s after SIGTERM and SIGKILL: is its disk or network gone?"
        words = (f"{_shown(process)} {self.refused.get(key, hangs)}" for key, process in sorted(left.items()))
        return Ending(tuple(ended), tuple(words))

    def tell(self, process: Process, number: signal.Signals) -> None:
        """Send a signal to a process if it still is what it was."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            self._note(process, error)
            return
        try:
            # Whatever has this number now is held by the descriptor; only now is what it runs worth knowing.
            held = _read(self.disk.root / "proc" / str(process.pid))
            if held is None or not any(running(self.disk, path, (held,)) for path in self.paths):
                return
            signal.pidfd_send_signal(descriptor, number)
            if number == signal.SIGKILL:
                self.killed.add(held.key)
        except OSError as error:
            self._note(process, error)
        finally:
            os.close(descriptor)

    def _note(self, process: Process, error: OSError) -> None:
        if error.errno == errno.ENOSYS:
            self.refused[process.key] = "still runs: this kernel cannot hold a process while it is looked at (pidfd)"
        elif error.errno != errno.ESRCH:
            self.refused[process.key] = f"still runs: {error.strerror}"


def _read(folder: Path) -> Process | None:
    """Return the process of a folder of ``/proc``, None if it ended."""
    try:
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    executable = ""
    with contextlib.suppress(OSError):  # a kernel thread, a zombie, or a process we may not look into
        executable = str((folder / "exe").readlink())
    status = _status_of(folder)
    if status is None:
        return None
    deleted = executable.endswith(_DELETED)
    return Process(int(folder.name), status[0], executable.removesuffix(_DELETED), tuple(arguments), status[1], deleted)


def _status_of(folder: Path) -> tuple[str, int] | None:
    """Return a process' own name, as far as it can be shown, and its start in ticks; None if it ended. Source: proc(5).

    One that ended and that its parent did not ask for yet is still listed, as a zombie.
    """
    try:
        text = (folder / "stat").read_bytes().decode(errors="replace")
    except OSError:
        return "", 0  # it ends just now, and is looked at once more before anything is done to it
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
    # What was there before: of that only the file system can be compared.
    near = _status(real.parent)
    return runs.st_dev in {status.st_dev for status in (there, near) if status is not None}


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _same_pids(disk: Disk) -> bool:
    """Return whether the node's numbers of processes are ours.

    ``/proc`` tells the numbers from its namespace to ours.
    """
    with contextlib.suppress(OSError):
        for line in (disk.root / "proc/self/status").read_text(encoding="utf-8").splitlines():
            name, _, numbers = line.partition(":")
            if name == "NSpid":
                return len(numbers.split()) == 1
    return False


def _shown(process: Process) -> str:
    return f"process {process.pid} ({process.name or 'without a name'}) of {process.executable}"
