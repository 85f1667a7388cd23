"""The Secret that the curve keys are kept in, and how a rotation goes through it.

Pure: a manifest in, keys out; keys in, the Secret's data out. Called by ``trellis secrets rotate`` and
``drop-previous``; ``gather`` reads by it.
A rotation is made in two steps, because replicas read the Secret by turns: first every replica opens what is sealed to
the new key (``announced``), then all give it out (``promoted``). In one step a host could be given the new key by one
replica and be answered DecryptionError by another. Invariant: no message and no repr holds a seed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from secrets_backend.domain.keys import CurveKey, KeyFormatError, KeyRing
from trellis import names

Manifest = dict[str, Any]


class KeySecretError(ValueError):
    """The Secret holds no keys; the text says what is wrong with which entry, and nothing of what is in it."""


def read_ring(manifest: Mapping[str, Any]) -> KeyRing:
    """Return the keys that a Secret holds.

    Raises:
        KeySecretError: an entry is missing, or is no seed of a curve key.
    """
    data = manifest.get("data") or {}
    if names.SECRETS_SEED not in data:
        raise KeySecretError(f"it has no entry {names.SECRETS_SEED}")
    current = _key(names.SECRETS_SEED, _text(data, names.SECRETS_SEED))
    lines = _text(data, names.SECRETS_PREVIOUS).splitlines() if names.SECRETS_PREVIOUS in data else []
    previous = [_key(names.SECRETS_PREVIOUS, line) for line in lines if line.strip()]
    return KeyRing(current, tuple(previous))


def data_of(ring: KeyRing) -> dict[str, str]:
    """Return what the Secret's ``data`` is to be, values in base64 as the API server has them."""
    data = {names.SECRETS_SEED: ring.current.seed()}
    if ring.previous:
        data[names.SECRETS_PREVIOUS] = "".join(f"{key.seed()}\n" for key in ring.previous)
    return {entry: base64.b64encode(text.encode()).decode() for entry, text in data.items()}


def announced(ring: KeyRing, key: CurveKey) -> KeyRing:
    """Return the keys once a new one opens requests already and is not given out yet."""
    return KeyRing(ring.current, (key, *ring.previous))


def promoted(ring: KeyRing, key: CurveKey) -> KeyRing:
    """Return the keys once an announced one is given out; the one before it still opens requests."""
    return KeyRing(key, _without((ring.current, *ring.previous), key))


def without_previous(ring: KeyRing) -> KeyRing:
    """Return the keys once only the one that is given out is left."""
    return KeyRing(ring.current)


def _without(keys: Iterable[CurveKey], key: CurveKey) -> tuple[CurveKey, ...]:
    return tuple(one for one in dict.fromkeys(keys) if one != key)


def _text(data: Mapping[str, str], entry: str) -> str:
    try:
        return base64.b64decode(data[entry] or "", validate=True).decode()
    except ValueError:  # no base64, or no text in it
        pass
    raise KeySecretError(f"its entry {entry} is no text")


def _key(entry: str, seed: str) -> CurveKey:
    try:
        return CurveKey.from_seed(seed)
    except KeyFormatError as error:
        why = str(error)
    raise KeySecretError(f"its entry {entry} holds no seed of a curve key (SX…): {why}")
