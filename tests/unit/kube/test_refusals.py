"""When a refused write is tried again."""

from __future__ import annotations

import pytest

from service_reflector import reconciler as of_reflector
from trellis.kube.errors import Call, Conflict, Forbidden, KubeError, error_from
from trellis.kube.refusals import Refusals, is_refused
from trellis.kube.resources import HTTP_ROUTES, SERVICES, Resource
from trellis.telemetry import TraceContext

DENIED = b'{"message": "denied the request: no team", "reason": "Forbidden"}'


class Runs:
    """A queue that runs nothing."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.later: dict[str, float] = {}

    def add(self, key: str) -> None:
        self.now.append(key)

    def add_after(self, key: str, delay: float) -> None:
        self.later[key] = delay


def error(status: int, body: bytes = DENIED, res: Resource = SERVICES) -> KubeError:
    return error_from(Call("POST", res.kind, res.plural, "a", "shop"), status, body, {})


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (error(403), True),
        (error(422), True),
        (error(400), True),
        (error(500, b"failed calling webhook: timeout"), True),
        (error(500, b"etcdserver: request timed out"), False),
        (error(503, b""), False),
        (error(404), False),
        (error(409), False),
        (error(429), False),
    ],
    ids=lambda item: str(item)[:40],
)
def test_an_error_that_only_a_person_can_resolve_is_a_refusal(found: KubeError, refused: bool) -> None:
    assert is_refused(found) is refused


def test_an_httproute_that_is_not_served_is_one_of_service_reflectors() -> None:
    assert of_reflector.is_refused(error(404, res=HTTP_ROUTES))
    assert not of_reflector.is_refused(error(404))
    assert of_reflector.is_refused(error(403))


def test_a_refused_key_runs_again_within_seconds_and_the_first_that_succeeds_runs_the_others() -> None:
    queue, notes = Runs(), list[str]()
    refusals = Refusals(queue, notes.append)
    for _ in range(20):
        for key in ("a/1", "a/2", "a/3"):
            refusals.failed(key, error(403))
    assert max(queue.later.values()) <= 20
    assert "no team" in notes[-1]
    refusals.done("a/9")
    assert queue.now == [], "nothing of it was refused"
    refusals.done("a/1")
    assert queue.now == ["a/2", "a/3"]
    refusals.done("a/2")
    refusals.done("a/3")
    assert notes[-1] == ""


def test_many_refused_keys_do_not_all_come_back_within_seconds() -> None:
    queue = Runs()
    refusals = Refusals(queue, lambda _: None)
    for number in range(1_000):
        refusals.failed(f"a/{number}", error(403))
    assert queue.later["a/999"] > 60


def test_other_failures_are_the_queues() -> None:
    queue = Runs()
    refusals = Refusals(queue, lambda _: None)
    refusals.failed("a/1", Conflict(Call("PATCH", "Service", "services"), status=409, reason="Conflict", message=""))
    refusals.failed("a/1", RuntimeError())
    assert queue.later == {}


async def test_a_run_is_noted_and_ends_as_it_would_without() -> None:
    queue, notes, outcomes = Runs(), list[str](), [error(403), error(409), 30.0]
    refusals = Refusals(queue, notes.append)

    async def run(_: str, __: TraceContext | None) -> float | None:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    heeded = refusals.heeding(run)
    with pytest.raises(Forbidden):
        await heeded("a/1", None)
    assert refusals.refused.keys() == {"a/1"}
    with pytest.raises(Conflict):
        await heeded("a/2", None)
    assert refusals.refused.keys() == {"a/1"}
    assert await heeded("a/1", None) == 30.0
    assert (refusals.refused, notes[-1]) == ({}, "")
