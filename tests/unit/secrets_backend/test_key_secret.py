"""The Secret of the curve keys: what is in it, how a rotation goes through it, and that no seed gets out."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import pytest

from secrets_backend.domain.key_secret import (
    KeySecretError,
    announced,
    data_of,
    promoted,
    read_ring,
    without_previous,
)
from secrets_backend.domain.keys import CurveKey, KeyRing
from trellis import names

OLD, NEW, OLDER = CurveKey.make(), CurveKey.make(), CurveKey.make()


def a_secret(**entries: str | bytes) -> dict[str, Any]:
    raw = {name: value.encode() if isinstance(value, str) else value for name, value in entries.items()}
    return {"data": {name: base64.b64encode(value).decode() for name, value in raw.items()}}


@pytest.mark.parametrize("ring", [KeyRing(OLD), KeyRing(NEW, (OLD,)), KeyRing(NEW, (OLD, OLDER))])
def test_keys_are_read_back_as_they_were_written(ring: KeyRing) -> None:
    assert read_ring({"data": data_of(ring)}) == ring


def test_keys_that_a_person_wrote_are_read_with_their_blanks() -> None:
    found = a_secret(seed=f"{NEW.seed()}\n", previous=f"\n {OLD.seed()} \n\n{OLDER.seed()}")
    assert read_ring(found) == KeyRing(NEW, (OLD, OLDER))
    assert read_ring(a_secret(seed=NEW.seed(), previous="")) == KeyRing(NEW)


def test_a_new_key_opens_before_it_is_given_out_and_the_former_one_after() -> None:
    """A replica that has not read the Secret yet must never be asked with a key it does not know."""
    before = KeyRing(OLD, (OLDER,))
    between = announced(before, NEW)
    assert between == KeyRing(OLD, (NEW, OLDER))
    after = promoted(between, NEW)
    assert after == KeyRing(NEW, (OLD, OLDER))
    assert without_previous(after) == KeyRing(NEW)


def test_two_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    same = CurveKey.from_seed(OLD.seed())
    assert same == OLD
    assert same != NEW
    assert KeyRing(same, (NEW,)) == KeyRing(OLD, (NEW,))
    assert len(compared) >= 3


def test_a_key_that_was_not_announced_can_be_given_out_at_once() -> None:
    assert promoted(KeyRing(OLD), NEW) == KeyRing(NEW, (OLD,))


def test_a_rotation_by_two_at_once_loses_no_key() -> None:
    ring = announced(announced(KeyRing(OLD), NEW), OLDER)
    assert promoted(promoted(ring, NEW), OLDER) == KeyRing(OLDER, (NEW, OLD))


SEED = OLD.seed()
BROKEN: dict[str, dict[str, Any]] = {
    "no data": {},
    "no seed": a_secret(previous=SEED),
    "an empty seed": a_secret(seed=""),
    "a public key": a_secret(seed=OLD.public),
    "a seed that is cut": a_secret(seed=SEED[:-1]),
    "a seed with an error": a_secret(seed=SEED[:20] + ("A" if SEED[20] != "A" else "B") + SEED[21:]),
    "bytes": a_secret(seed=b"\xff\xfe"),
    "no base64": {"data": {"seed": "%%%"}},
    "no ASCII": {"data": {"seed": "٣"}},
    "null": {"data": {"seed": None}},
    "a former one that is none": a_secret(seed=SEED, previous=f"{NEW.seed()}\n{SEED[:-2]}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_secret_without_keys_is_refused_without_showing_its_data(name: str) -> None:
    with pytest.raises(KeySecretError) as refused:
        read_ring(BROKEN[name])
    message = repr(refused.value) + str(refused.value)
    assert f"entry {names.SECRETS_SEED}" in message or f"entry {names.SECRETS_PREVIOUS}" in message
    assert SEED[:12] not in message
    assert NEW.seed()[:12] not in message
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
