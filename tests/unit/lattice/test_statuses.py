"""The last status of each application by wadm, and its validity."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, cast

import pytest

from support.nats.buses import eventually
from trellis.lattice.connection.lattice_connection import (
    LatticeConnection,
    MessageHandler,
    NatsUnavailableError,
    SilenceError,
)
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Refusal, Status, WadmRefusedError
from trellis.lattice.domain.store import StoredManifest, StoredModel
from trellis.lattice.timings import LatticeTimings, ProbeTimings, StatusTimings
from trellis.lattice.wadm import statuses
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wadm.probe import WadmProbe
from trellis.lattice.wadm.statuses import Statuses

ONE, OTHER = {"components": [{"name": "one"}]}, {"components": [{"name": "other"}]}
HURRIED = ProbeTimings(every=0.01, again=0.01)
DEPLOYED, RECONCILING = Status("deployed"), Status("reconciling", "Scaling component on 1 host(s)")


class Lattice:
    """Models, a wadm that answers with ``answers``, and a link that is there."""

    def __init__(self, timings: StatusTimings = StatusTimings()) -> None:
        self.models: dict[str, StoredModel] = {}
        self.answers: dict[str, Status] = {}
        self.error: Exception | None = None
        self.errors: dict[str, Exception] = {}
        self.requested: list[str] = []
        self.requested_at: list[float] = []
        self.received_at: list[str] = []
        self.since: float | None = 1.0
        self._handler: MessageHandler | None = None
        given = LatticeTimings(statuses=timings)
        self.statuses = Statuses(cast("Wadm", self), cast("LatticeConnection", self), self, self._notify, given)

    # What Statuses sees of the models, of wadm and of the link.

    def names(self) -> Collection[str]:
        return list(self.models)

    def find(self, name: str) -> StoredModel | None:
        return self.models.get(name)

    async def status(self, name: str) -> Status:
        self.requested.append(name)
        self.requested_at.append(time.monotonic())
        if (error := self.errors.get(name, self.error)) is not None:
            raise error
        return self.answers.get(name, Status("undeployed"))

    async def there(self) -> None:
        return

    async def listen(self, _subject: str, handler: MessageHandler) -> None:
        self._handler = handler

    async def ignore(self, _subject: str, _to_remove: MessageHandler) -> None:
        return

    def _notify(self, names: Iterable[str]) -> None:
        self.received_at += names

    # What happens in it.

    def stores(self, name: str, deployed: str, **versions: dict[str, Any]) -> None:
        manifests = tuple(
            (version, StoredManifest.of({"metadata": {"name": name}, "spec": item}))
            for version, item in versions.items()
        )
        self.models[name] = StoredModel(name, manifests, deployed, 1)
        self.statuses.models_changed([name])

    def deletes(self, name: str) -> None:
        del self.models[name]
        self.statuses.models_changed([name])

    def publishes(self, name: str, status: Status) -> None:
        assert self._handler is not None
        self.answers[name] = status
        published_at = {"status": {"type": status.status, "message": status.message}, "version": "", "components": []}
        self._handler(f"wadm.status.red.{name}", json.dumps(published_at).encode())


@contextlib.asynccontextmanager
async def known(timings: StatusTimings = StatusTimings()) -> AsyncIterator[Lattice]:
    """A lattice with ``web`` in version v1, which runs, and is known to."""
    made = Lattice(timings)
    made.stores("web", "v1", v1=ONE)
    made.answers["web"] = DEPLOYED
    running = asyncio.create_task(made.statuses.run("red"))
    made.statuses.models_changed(None)
    await eventually(lambda: made.statuses.find("web") == DEPLOYED)
    made.received_at.clear()
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.fixture
async def lattice() -> AsyncIterator[Lattice]:
    async with known() as made:
        yield made


async def test_the_status_of_one_version_does_not_apply_to_another(lattice: Lattice) -> None:
    lattice.stores("web", "v2", v1=ONE, v2=OTHER)
    assert lattice.statuses.find("web") is None
    lattice.publishes("web", RECONCILING)
    assert lattice.statuses.find("web") == RECONCILING
    lattice.publishes("web", DEPLOYED)
    assert lattice.statuses.find("web") == DEPLOYED
    assert lattice.received_at == ["web", "web"]


async def test_an_equivalent_version_keeps_the_status(lattice: Lattice) -> None:
    lattice.stores("web", "v2", v1=ONE, v2=ONE)
    assert lattice.statuses.find("web") == DEPLOYED


async def test_an_equal_status_received_again_applies_to_the_new_version(lattice: Lattice) -> None:
    lattice.stores("web", "v2", v1=ONE, v2=OTHER)
    lattice.publishes("web", DEPLOYED)
    assert lattice.statuses.find("web") == DEPLOYED
    assert lattice.received_at == ["web"]


async def test_a_status_that_wadm_does_not_repeat_is_requested_after_a_while() -> None:
    async with known(StatusTimings(unconfirmed=0.2)) as lattice:
        lattice.requested.clear()
        lattice.stores("web", "v2", v1=ONE, v2=OTHER)
        assert lattice.statuses.find("web") is None
        await eventually(lambda: lattice.statuses.find("web") == DEPLOYED)
        assert lattice.requested == ["web"]
        assert lattice.received_at == ["web"]


async def test_the_status_of_a_deleted_application_does_not_apply_to_the_next_of_its_name(
    lattice: Lattice,
) -> None:
    lattice.deletes("web")
    lattice.stores("web", "", v1=OTHER)
    lattice.publishes("web", DEPLOYED)  # wadm's own stream has it still
    lattice.stores("web", "v1", v1=OTHER)
    assert lattice.statuses.find("web") is None
    lattice.publishes("web", Status("undeployed", "Manifest has been undeployed"))  # of the former one, late
    lattice.publishes("web", RECONCILING)
    assert lattice.statuses.find("web") == RECONCILING


async def test_an_answer_never_replaces_a_status_received_after_its_request() -> None:
    async with known(StatusTimings(unconfirmed=0.0)) as lattice:
        await answered_late(lattice)


async def answered_late(lattice: Lattice) -> None:
    release = asyncio.Event()

    async def slowly(name: str) -> Status:
        answer = lattice.answers.get(name, Status("undeployed"))
        lattice.requested.append(name)
        await release.wait()
        return answer

    lattice.status = slowly  # type: ignore[method-assign]
    lattice.requested.clear()
    lattice.stores("new", "v1", v1=ONE)
    await eventually(lambda: lattice.requested == ["new"])
    lattice.publishes("new", RECONCILING)
    release.set()
    lattice.stores("later", "v1", v1=ONE)
    await eventually(lambda: lattice.statuses.find("later") is not None)
    assert lattice.statuses.find("new") == RECONCILING


async def test_a_list_never_replaces_a_status_received_after_its_request(lattice: Lattice) -> None:
    answered = lattice.statuses.asking()
    lattice.publishes("web", RECONCILING)
    answered({"web": DEPLOYED, "api": Status("failed")})
    assert (lattice.statuses.find("web"), lattice.statuses.find("api")) == (RECONCILING, Status("failed"))
    assert lattice.received_at == ["web", "api"]
    lattice.statuses.asking()({"web": DEPLOYED, "api": Status("failed")})
    assert lattice.statuses.find("web") == DEPLOYED
    assert lattice.received_at == ["web", "api", "web"]


@pytest.mark.parametrize(("unconfirmed", "counts"), [(60.0, False), (0.0, True)])
async def test_a_list_applies_to_another_version_after_the_time_of_a_status_event(
    unconfirmed: float, *, counts: bool
) -> None:
    async with known(StatusTimings(unconfirmed=unconfirmed)) as lattice:
        before = lattice.statuses.asking()
        lattice.stores("web", "v2", v1=ONE, v2=OTHER)
        before({"web": Status("failed")})
        assert lattice.statuses.find("web") is None
        lattice.statuses.asking()({"web": DEPLOYED})
        assert (lattice.statuses.find("web") == DEPLOYED) is counts
        assert "web" in lattice.received_at


class TestAnswering:
    """The check whether any wadm answers."""

    @contextlib.asynccontextmanager
    async def asking(self, *lattices: Lattice) -> AsyncIterator[tuple[WadmProbe, list[str]]]:
        received_at: list[str] = []
        made = WadmProbe(cast("LatticeConnection", lattices[0]), HURRIED)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(made.run(cast("Wadm", lattice), lambda: received_at.append(made.reason)))
                for lattice in lattices
            ]
            yield made, received_at
            for task in running:
                task.cancel()

    async def test_a_wadm_that_fails_to_answer_several_times_is_unavailable_until_it_answers(self) -> None:
        lattice = Lattice()
        lattice.error = SilenceError("nobody answers")
        async with self.asking(lattice) as (made, received_at):
            await eventually(lambda: made.reason == "nobody answers")
            lattice.error = None
            await eventually(lambda: not made.reason)
        assert received_at == ["nobody answers", ""]

    async def test_one_answer_that_is_missed_is_no_silence(self) -> None:
        lattice = Lattice()

        async def by_turns(name: str) -> Status:
            lattice.requested.append(name)
            if len(lattice.requested) % 3:
                raise SilenceError("nobody answers")
            return DEPLOYED

        lattice.status = by_turns  # type: ignore[method-assign]
        async with self.asking(lattice) as (_, received_at):
            await eventually(lambda: len(lattice.requested) > 12)
        assert received_at == []

    async def test_the_lattices_of_one_wadm_take_turns_and_all_learn_that_it_is_unavailable(self) -> None:
        lattices = [Lattice() for _ in range(4)]
        async with self.asking(*lattices) as (made, received_at):
            await eventually(lambda: all(len(lattice.requested) > 2 for lattice in lattices))
            counts = [len(lattice.requested) for lattice in lattices]
            assert max(counts) - min(counts) <= 1
            for lattice in lattices:
                lattice.error = SilenceError("nobody answers")
            await eventually(lambda: made.reason != "")
        assert received_at == ["nobody answers"] * 4

    async def test_a_lattice_whose_queries_are_denied_does_not_hide_that_wadm_is_unavailable(self) -> None:
        denied, silent = Lattice(), Lattice()
        denied.error = NatsUnavailableError("this user may not publish")
        silent.error = SilenceError("nobody answers")
        async with self.asking(denied, silent) as (made, _):
            await eventually(lambda: made.reason == "nobody answers")

    async def test_a_lattice_that_is_not_followed_any_more_has_no_turn(self) -> None:
        left, right = Lattice(), Lattice()
        made = WadmProbe(cast("LatticeConnection", left), HURRIED)
        first = asyncio.create_task(made.run(cast("Wadm", left), lambda: None))
        second = asyncio.create_task(made.run(cast("Wadm", right), lambda: None))
        await eventually(lambda: bool(left.requested and right.requested))
        first.cancel()
        await asyncio.wait({first})
        requested = len(left.requested)
        right.requested.clear()
        await eventually(lambda: len(right.requested) > 3)
        assert len(left.requested) == requested
        second.cancel()
        await asyncio.wait({second})

    @pytest.mark.parametrize(
        "error", [NatsUnavailableError("this user may not publish"), WadmRefusedError(Refusal.FAILED, "no storage")]
    )
    async def test_another_error_is_not_taken_for_silence(self, error: Exception) -> None:
        lattice = Lattice()
        lattice.error = error
        async with self.asking(lattice) as (_, received_at):
            await eventually(lambda: len(lattice.requested) > 6)
        assert received_at == []


async def test_no_status_is_kept_without_an_application_and_a_new_application_is_asked_about() -> None:
    async with known(StatusTimings(unconfirmed=0.2)) as lattice:
        for number in range(1000):
            lattice.publishes(f"made-up-{number}", Status("deployed", "x" * 1000))
        assert lattice.statuses._statuses.keys() == {"web"}
        lattice.stores("made-up-7", "v1", v1=ONE)
        await eventually(lambda: lattice.statuses.find("made-up-7") is not None)


async def test_the_memory_for_statuses_is_bounded_and_evicted_ones_are_requested_again(
    lattice: Lattice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "CHARACTERS_KEPT", 5_000)
    for number in range(20):
        lattice.stores(f"app-{number}", "v1", v1=ONE)
    for number in range(20):
        lattice.publishes(f"app-{number}", Status("deployed", "x" * 1000))
        assert sum(item.characters for item in lattice.statuses._statuses.values()) <= 5_000
        assert lattice.statuses._characters == sum(item.characters for item in lattice.statuses._statuses.values())
    assert lattice.statuses.find("app-19") is not None, "the newest is kept"
    lattice.publishes("app-3", Status("deployed", "x" * 4_000))
    lattice.deletes("app-3")
    assert lattice.statuses._characters == sum(item.characters for item in lattice.statuses._statuses.values())


async def test_the_status_of_an_undeployed_application_is_not_requested_and_of_a_deployed_one_only_if_missing() -> None:
    async with known(StatusTimings(unconfirmed=0.3)) as lattice:
        lattice.requested.clear()
        lattice.stores("put", "", v1=ONE)
        lattice.stores("silent", "v1", v1=ONE)
        lattice.stores("heard", "v1", v1=ONE)
        lattice.publishes("heard", RECONCILING)
        await eventually(lambda: lattice.statuses.find("silent") is not None)
        assert lattice.requested == ["silent"]


async def test_an_application_undeployed_while_unconfirmed_is_not_checked_again_for_that() -> None:
    async with known(StatusTimings(unconfirmed=0.1, every=600.0)) as lattice:
        lattice.stores("silent", "v1", v1=ONE)
        lattice.stores("silent", "", v1=ONE)
        assert lattice.statuses._pause() == 600.0


@pytest.mark.parametrize(
    "error",
    [WadmRefusedError(Refusal.FAILED, "no manifest"), LatticeDataError("no status")],
    ids=["refused", "garbage"],
)
async def test_a_status_unknown_to_wadm_is_requested_with_backoff_without_delaying_others(
    error: Exception,
) -> None:
    async with known(StatusTimings(again=0.05, unconfirmed=0.0)) as lattice:
        lattice.errors["unreadable"] = error
        lattice.stores("unreadable", "v1", v1=ONE)
        await eventually(lambda: "unreadable" in lattice.requested)
        lattice.requested.clear()
        lattice.requested_at.clear()
        lattice.since = 2.0  # after which everything is asked once
        lattice.statuses.want()
        await eventually(lambda: lattice.requested.count("unreadable") == 3)
        assert lattice.requested.count("web") == 1
        at = [when for name, when in zip(lattice.requested, lattice.requested_at, strict=True) if name == "unreadable"]
        assert (at[1] - at[0] > 0.09, at[2] - at[1] > 0.19) == (True, True)
        lattice.errors.clear()
        lattice.stores("unreadable", "v2", v1=ONE, v2=OTHER)
        assert lattice.statuses._pause() == 0.0, "another manifest is asked about at once"
        await eventually(lambda: lattice.statuses.find("unreadable") == Status("undeployed"))


async def test_an_unanswered_application_is_asked_about_again_soon_and_no_other_for_its_sake() -> None:
    async with known(StatusTimings(again=0.05, unconfirmed=0.0)) as lattice:
        lattice.errors["slow"] = SilenceError("no answer")
        lattice.stores("slow", "v1", v1=ONE)
        await eventually(lambda: lattice.requested.count("slow") == 4)
        assert lattice.requested.count("web") == 1
        assert lattice.statuses._pause() <= 0.05
        lattice.errors.clear()
        await eventually(lambda: lattice.statuses.find("slow") is not None)


async def test_a_received_status_ends_the_requests_for_it() -> None:
    async with known(StatusTimings(again=0.05, unconfirmed=0.0, every=600.0)) as lattice:
        lattice.errors["unreadable"] = WadmRefusedError(Refusal.FAILED, "no manifest")
        lattice.stores("unreadable", "v1", v1=ONE)
        await eventually(lambda: "unreadable" in lattice.requested)
        lattice.publishes("unreadable", DEPLOYED)
        assert lattice.statuses._pause() == 600.0
        lattice.deletes("unreadable")
        assert lattice.statuses._missed == {}
