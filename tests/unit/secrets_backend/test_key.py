"""The key as one replica knows it: who doubts it gets what stands in the Secret after that, at a bounded cost."""

from __future__ import annotations

import asyncio

import pytest

from secrets_backend.domain.key_secret import data_of
from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.key import Key, make_secret
from secrets_backend.timings import KeyTimings
from trellis import names
from trellis.kube.resources import NAMESPACES, SECRETS
from trellis.kube.transport import HttpRequest
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube, status_reply

TIMINGS = KeyTimings(look=600.0, soon=0.2)


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube(telemetry=setup("test", metrics=Metrics()))
    made.put(NAMESPACES, {"metadata": {"name": "system"}})
    made.put(SECRETS, make_secret("system", KeyRing(CurveKey.make(), ())))
    return made


@pytest.fixture
async def key(kube: FakeKube) -> Key:
    made = Key(kube, "system", Health("test"), TIMINGS)
    await made.look()
    return made


def rotated(kube: FakeKube, key: Key) -> KeyRing:
    ring = KeyRing(CurveKey.make(), (key.ring.current,))
    [secret] = kube.objects(SECRETS)
    kube.put(SECRETS, secret | {"data": data_of(ring)})
    return ring


async def test_a_key_replaced_right_after_a_read_is_seen_by_a_later_refresh(kube: FakeKube, key: Key) -> None:
    """Another replica gave the new one to a host already, whose first request comes here."""
    await key.look()
    ring = rotated(kube, key)
    assert await key.invalidate()
    assert key.ring == ring


async def test_an_undecryptable_message_costs_one_request_for_all_concurrent_refreshes(
    kube: FakeKube, key: Key
) -> None:
    requested: list[str] = []

    def count(request: HttpRequest) -> bool:
        requested.append(request.path)
        return False

    kube.fail_next(1, when=count)
    assert await asyncio.gather(*(key.invalidate() for _ in range(50))) == [False] * 50
    assert [path.rsplit("/", 1)[-1] for path in requested] == [names.SECRETS_KEY]


async def test_a_deleted_key_that_may_not_be_recreated_is_reported_until_it_is(kube: FakeKube) -> None:
    health = Health("test")
    key = Key(kube, "system", health, TIMINGS)
    await key.look()
    ring = key.ring
    kube.remove(SECRETS, names.SECRETS_KEY, "system")
    expected_text = "no owner is named"
    kube.answer_next(
        1, lambda _: status_reply(422, "Invalid", expected_text), when=lambda request: request.method == "POST"
    )
    await key.look()
    assert health.readiness().ok
    assert any(expected_text in note for note in health.notes())
    await key.look()
    assert not health.notes()
    assert key.ring == ring
