"""A process that has imported everything once and forks whenever a service process is wanted: half a second, not three.

Run as ``python forkserver.py``. In: a line of JSON each, ``{"environment", "bare", "arguments", "log", "errors"}``, on
standard input; ``bare``: the environment is no more than that. Out:
``{"pid"}`` when it is born, ``{"pid", "code"}`` when it has ended, on standard output. It ends, and all its children
with it, when its input does. The one who asks is ``Forkserver``, which gives processes like those of asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_BIRTH_SECONDS: Final = 300.0
_TESTS: Final = str(Path(__file__).parents[2])
_PR_SET_PDEATHSIG: Final = 1
_FILES_MAX: Final = 256
"""More than a process has open that has only imported."""


class Child:
    """A process that a forkserver has made."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._waiting: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        """Take how it ended: its status, or the negative number of the signal."""
        with self._lock:
            self.returncode = code
            waiting, self._waiting = self._waiting, []
        self._ended.set()
        for item in waiting:
            item()

    def end_within(self, seconds: float) -> int | None:
        """Wait for its end in a thread; return how it ended, None if it has not."""
        self._ended.wait(seconds)
        return self.returncode

    async def wait(self) -> int:
        """Wait for its end and return how it ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self.returncode is not None:
                return self.returncode
            self._waiting.append(lambda: loop.is_closed() or loop.call_soon_threadsafe(ended.set))
        await ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Forkserver:
    """Asks for processes that run a module which has ``main`` and has imported what it needs; of any event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._born: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._asking = threading.Lock()

    def start(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str],
        log: Path,
        *,
        errors: Path | None = None,
        bare: bool = False,
    ) -> Child:
        """Have a process, with these variables on top of the forkserver's, or with these alone if it is to be ``bare``.

        What it prints goes to the end of the log; to that of ``errors`` what it has to say beside, if that is given.
        """
        log.touch()  # the child opens it some time after its fork, and tests read it at once
        order = {
            "environment": dict(environment),
            "bare": bare,
            "arguments": [*arguments],
            "log": str(log),
            "errors": str(errors or log),
        }
        assert self._process.stdin is not None
        with self._asking:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return self._born.get(timeout=_BIRTH_SECONDS)

    async def have(self, environment: Mapping[str, str], arguments: Sequence[str], log: Path) -> Child:
        """Have a process as ``start`` does; one without a waiting caller is ended."""
        starting = asyncio.create_task(asyncio.to_thread(self.start, environment, arguments, log))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            (await starting).send_signal(signal.SIGKILL)
            raise

    def kill(self) -> None:
        """End the forkserver as a crash would; its children end with it."""
        self._process.kill()

    def receive(self) -> None:
        """Take what the forkserver says, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "code" in message:
                self._children.pop(message["pid"]).end(message["code"])
            else:
                child = self._children[message["pid"]] = Child(message["pid"])
                self._born.put(child)


@contextlib.contextmanager
def forkserver(module: str, **environment: str) -> Iterator[Forkserver]:
    """Have a forkserver for a module of ``tests`` for the time of a block; what it imports finds these variables."""
    paths = os.pathsep.join(filter(None, (_TESTS, os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [sys.executable, __file__, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths} | environment,
    ) as process:
        made = Forkserver(process)
        hearing = threading.Thread(target=made.receive, daemon=True)
        hearing.start()
        try:
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()
            hearing.join()


def _report(**message: int) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _be(main: Any, order: dict[str, Any]) -> None:
    """Be the child, for good, and no longer than there is a forkserver."""
    code = 70
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        output, errors = (
            os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for name in ("log", "errors")
        )
        nothing = os.open(os.devnull, os.O_RDONLY)
        for given, number in ((nothing, 0), (output, 1), (errors, 2)):
            os.dup2(given, number)
        os.closerange(3, _FILES_MAX)
        if order["bare"]:
            os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["trellis", *order["arguments"]]
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001 - a child never goes on as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(module: str) -> None:
    main = __import__(module, fromlist=["main"]).main
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, f"threads do not survive a fork: {threading.enumerate()}"
    children: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    _loop(main, children, reading)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _loop(main: Any, children: set[int], woken: int) -> None:
    """Fork for each line of input, and report each child that ended, until there is no more input."""
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for pid in sorted(children):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    children.discard(pid)
                    _report(pid=pid, code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            if not (read := os.read(0, 1 << 16)):
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _be(main, json.loads(line))
                children.add(pid)
                _report(pid=pid)


if __name__ == "__main__":
    _serve(sys.argv[1])
