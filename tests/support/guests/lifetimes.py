"""The guest of one controller with a real runtime, a real directory and a disk that can refuse writes.

In: modules as bytes. Out: `GuestLifecycle` as ``hosting`` uses it, without the service around it. ``Disk`` lets writes
through, or refuses them from the n-th on: of snapshots, of SQLite, of files that are written whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller_host.domain.accounts import Account
from controller_host.domain.keys import ObjectKey
from controller_host.guest import directories
from controller_host.guest.limits import Limits
from controller_host.host_calls.calling import Calling, Calls
from controller_host.scheduler.deliveries import Delivery, Served
from controller_host.scheduler.guests import LocalGuests, Prepared
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Turn
from controller_host.state.disk_space import DiskSpace
from controller_host.state.progress import Progress
from controller_host.timings import Timings
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

UID = "uid-one"
COUNTING = """(module
  (memory (export "memory") 2)
  (global $calls (mut i32) (i32.const 0))
  (data (i32.const 16) "{\\22requeueAfter\\22:1000}")
  (data (i32.const 64) "{\\22calls\\22:0}")
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "init") (param i32 i32) (result i64) (i64.const 0))
  (func (export "migrate") (param i32 i32) (result i64)
    (global.set $calls (i32.sub (i32.load8_u (i32.sub (i32.add (local.get 0) (local.get 1)) (i32.const 4)))
      (i32.const 48))) (i64.const 0))
  (func (export "save") (result i64)
    (i32.store8 (i32.const 73) (i32.add (i32.const 48) (global.get $calls))) (i64.const 0x0000_0040_0000_000b))
  (func (export "reconcile") (param i32 i32) (result i64)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1))) (i64.const 0)))"""
"""It counts its calls, saves {"calls":N}, N below 10, and takes that over."""

LOOP = "(loop (br 0))"
LOOPING = {
    "start": COUNTING[:-1] + f"(func $begin {LOOP}) (start $begin))",
    "_initialize": COUNTING[:-1] + f'(func (export "_initialize") {LOOP}))',
    "init": COUNTING.replace('"migrate")', '"unused")').replace(
        '"init") (param i32 i32) (result i64)', f'"init") (param i32 i32) (result i64) {LOOP}'
    ),
    "migrate": COUNTING.replace(
        '"migrate") (param i32 i32) (result i64)', f'"migrate") (param i32 i32) (result i64) {LOOP}'
    ),
    "reconcile": COUNTING.replace(
        '"reconcile") (param i32 i32) (result i64)', f'"reconcile") (param i32 i32) (result i64) {LOOP}'
    ),
}
"""What loops, by where it does."""


@dataclass
class Disk:
    """The writes that the disk accepts. ``left``: writes before it is full, None: all; ``spared``: those of SQLite
    alone count.
    """

    left: int | None = None
    refused: int = 0
    spared: bool = False

    def write(self, *, of_file: bool = True) -> None:
        """Take a write, or not."""
        if self.left is None or (of_file and self.spared):
            return
        if self.left <= 0:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1

    @contextlib.contextmanager
    def patched(self, patch: pytest.MonkeyPatch) -> Iterator[Disk]:
        """Be the disk of snapshots, modules and SQLite."""
        pwrite, ftruncate, whole = os.pwrite, os.ftruncate, directories.write_whole

        def writing(*arguments: Any) -> int:
            self.write()
            return pwrite(*arguments)

        def truncating(*arguments: Any) -> None:
            self.write()
            ftruncate(*arguments)

        def writing_whole(path: Path, data: bytes) -> None:
            self.write()
            whole(path, data)

        class Connection(sqlite3.Connection):
            def execute(connection, statement: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: N805
                if statement == "COMMIT":
                    try:
                        self.write(of_file=False)
                    except OSError:
                        sqlite3.Connection.execute(connection, "ROLLBACK")  # as SQLite does where there is no room
                        error = sqlite3.OperationalError("database or disk is full")
                        error.sqlite_errorcode = sqlite3.SQLITE_FULL
                        raise error from None
                return sqlite3.Connection.execute(connection, statement, *arguments)

        connect = sqlite3.connect
        with patch.context() as patched:
            patched.setattr(os, "pwrite", writing)
            patched.setattr(os, "ftruncate", truncating)
            for module in ("modules", "snapshots"):
                patched.setattr(f"controller_host.guest.{module}.write_whole", writing_whole)
            patched.setattr("controller_host.scheduler.guests.write_whole", writing_whole)
            patched.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Connection, **k))
            yield self


class _NoKinds:
    async def resource(self, api_version: str, kind: str) -> Any:
        raise AssertionError((api_version, kind))


@dataclass
class Host:
    """A host with one controller; ``restart`` is what a kill and a start make of it."""

    directory: Path
    timings: Timings = field(default_factory=Timings)
    guests: LocalGuests = field(init=False)
    progress: Progress = field(init=False)
    lifecycle: GuestLifecycle = field(init=False)

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self.telemetry = setup("test", metrics=Metrics())
        self.guests, self.progress = LocalGuests(self.directory, timings=self.timings), Progress(self.directory)
        self.parts = Parts(
            self.guests, self.progress, self.telemetry, DiskSpace(timings=self.timings.disk), self.timings
        )
        loop = asyncio.new_event_loop()
        loop.close()
        self.calling = Calling(lambda _: FakeKube(), _NoKinds(), self.telemetry, lambda _: None, loop=loop)
        account = Account("team-a/one", "system:serviceaccount:team-a:one", "manager")
        self.lifecycle = GuestLifecycle(self.parts, "team-a/one", UID, Calls(self.calling, account, 0))

    def prepared(self, wasm: bytes, config: str = "c", **limits: Any) -> Prepared:
        """Return what is to run; its module is compiled."""
        module = self.guests.load(wasm)
        init = orjson.dumps({"controller": {}, "config": {}})
        return Prepared(module.sha256, init, config, Limits(**limits))

    def call(self, *names: str, version: int = 1) -> Served:
        """Call for objects; those whose name begins with "-" are deleted."""
        return self.lifecycle.serve([delivery(name, version) for name in names])

    def done(self, name: str) -> bool:
        """Return whether what counts as done includes an object, as the host has it."""
        call = self.lifecycle.processed.get(text(name))
        return call is not None and call.version not in {"", "!"}

    def kill(self) -> None:
        """End as a process that is killed, and begin again on the same directory."""
        if self.lifecycle.instance is not None:
            self.lifecycle.instance.close()
        self.progress._base.close()
        os.close(self.guests._snapshots._locked)
        self._open()

    def close(self) -> None:
        """End well."""
        if self.lifecycle.instance is not None:
            self.lifecycle.instance.close()
        self.progress.close()
        self.guests.close()


def delivery(name: str, version: int = 1) -> Delivery:
    key = ObjectKey("v1", "ConfigMap", "team-a", name.removeprefix("-"))
    if name.startswith("-"):
        return Delivery(Turn(key, 0, 0.0), None, "")
    item = orjson.dumps({"metadata": {"uid": f"u-{key.name}", "resourceVersion": str(version)}})
    return Delivery(Turn(key, 0, 0.0), item, f"u-{key.name}/{version}")


def text(name: str) -> str:
    return f"v1 ConfigMap team-a {name}"


def calls_of(lifecycle: GuestLifecycle) -> int:
    """Return how many calls a counting guest remembers; it has to be awake."""
    assert lifecycle.instance is not None
    saved = orjson.loads(lifecycle.instance.call("save", None).answer)
    found: int = saved["calls"]
    return found
