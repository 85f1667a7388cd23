"""Unused files leave the disk, while controllers come and go."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_host.domain.accounts import Account
from controller_host.domain.views import read_spec, view_controller
from controller_host.host_calls.calling import Calls
from controller_host.scheduler.guests import Owner
from controller_host.scheduler.hosted import Hosted
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.state.garbage_collection import ExistingControllers, GarbageCollection, existing_controllers_of
from controller_host.state.progress import KnownModule, LastCall, SeenVersions
from controller_host.timings import DiskTimings, Timings
from support.guests import wat
from support.guests.lifetimes import COUNTING, UID, Host

FIRST = wat.text(COUNTING)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    item = Host(tmp_path, Timings(disk=DiskTimings(young=0.0)))
    yield item
    item.close()


def hosted_by(host: Host, *names: str) -> list[Hosted]:
    found = []
    for name in names:
        spec = {
            "module": {"configMap": {"name": name, "key": "module.wasm"}, "sha256": "a" * 64},
            "serviceAccountName": "one",
            "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
        }
        view = view_controller({"metadata": {"namespace": "a", "name": name, "uid": f"uid-{name}"}, "spec": spec})
        account = Account(view.key, "user", "manager")
        lifecycle = (
            host.lifecycle
            if view.uid == UID
            else GuestLifecycle(host.parts, view.key, view.uid, Calls(host.calling, account, 0))
        )
        found.append(Hosted(view, account, lifecycle, wanted=read_spec(view)))
    return found


def collection(host: Host, living: ExistingControllers | None) -> GarbageCollection:
    return GarbageCollection(host.guests, host.progress, lambda: living, DiskTimings(sweep=0.01))


async def test_data_of_deleted_controllers_is_removed_and_of_existing_ones_stays(host: Host) -> None:
    host.lifecycle.adopt(host.prepared(FIRST))
    host.call("x")
    host.lifecycle.suspend()
    (item,) = hosted_by(host, "one")
    assert item.wanted is not None
    host.progress.commit("uid-gone", SeenVersions("b" * 64, "c", "t", {"k": LastCall("1")}))
    host.progress.learn("gone", KnownModule("b" * 64, 1, 1))
    host.progress.learn(item.wanted.source, KnownModule("a" * 64, 1, 1))
    living = existing_controllers_of({UID}, [item])
    await collection(host, living).sweep()
    assert host.progress.uids() == host.guests.uids() == {UID}
    assert (host.progress.known("gone"), host.progress.known(item.wanted.source)) == (None, KnownModule("a" * 64, 1, 1))
    assert host.lifecycle.prepared is not None
    assert host.guests.note(host.lifecycle.prepared.owner(UID)) is not None
    assert host.guests.module(host.lifecycle.prepared.sha256) is not None


async def test_one_that_comes_while_it_is_swept_keeps_what_it_has(host: Host) -> None:
    host.progress.commit("uid-gone", SeenVersions("b" * 64, "c", "t"))

    def living() -> ExistingControllers | None:
        # Between the look at the disk and the removal: it is not among those that were seen to live.
        host.lifecycle.adopt(host.prepared(FIRST))
        host.call("x")
        host.lifecycle.suspend()
        return existing_controllers_of(set(), [])

    await GarbageCollection(host.guests, host.progress, living).sweep()
    assert host.progress.uids() == host.guests.uids() == {UID}
    host.kill()
    host.lifecycle.adopt(host.prepared(FIRST))
    assert host.done("x")


async def test_nothing_is_collected_before_all_users_reported_and_nothing_is_done_twice(host: Host) -> None:
    host.progress.commit("uid-gone", SeenVersions("b" * 64, "c", "t"))
    assert existing_controllers_of({UID, "uid-other"}, hosted_by(host, "one")) is None
    await collection(host, None).sweep()
    assert host.progress.uids() == {"uid-gone"}
    twice = collection(host, existing_controllers_of({UID}, hosted_by(host, "one")))
    await twice.sweep()
    assert host.progress.uids() == set()
    host.progress.commit("uid-gone", SeenVersions("b" * 64, "c", "t"))
    await twice.sweep()
    assert host.progress.uids() == {"uid-gone"}, "nobody came or went"


async def test_an_unused_module_is_removed(host: Host) -> None:
    deleted = host.guests.load(wat.text(COUNTING[:-1] + "(func))")).sha256
    host.lifecycle.adopt(host.prepared(FIRST))
    await collection(host, existing_controllers_of({UID}, hosted_by(host, "one"))).sweep()
    assert host.guests.module(deleted) is None
    assert host.lifecycle.prepared is not None
    assert host.guests.module(host.lifecycle.prepared.sha256) is not None
    assert host.guests.note(Owner(UID, deleted, "c")) is None


@pytest.mark.parametrize("error", [OSError(30, "Read-only file system"), sqlite3.OperationalError("disk I/O error")])
async def test_it_goes_on_after_a_disk_that_takes_or_gives_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    host.progress.commit("uid-gone", SeenVersions("b" * 64, "c", "t"))
    forget, failures = host.guests.forget, []

    def failing(uid: str) -> None:
        if len(failures) < 2:
            failures.append(uid)
            raise error
        forget(uid)

    monkeypatch.setattr(host.guests, "forget", failing)
    work = asyncio.create_task(collection(host, existing_controllers_of({UID}, hosted_by(host, "one"))).run())
    async with asyncio.timeout(10):
        while host.progress.uids():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.01)
    work.cancel()
    assert len(failures) == 2
