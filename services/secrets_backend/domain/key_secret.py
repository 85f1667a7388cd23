"""The Secret with the curve keys, and the steps of a rotation.

Pure: a manifest in, keys out; keys in, the Secret's data out. Called by ``trellis secrets rotate`` and
``drop-previous``; ``key`` reads the Secret with it.
A rotation has two steps, because replicas read the Secret at different times: first every replica opens requests sealed
to the new key (``announced``), then all publish it (``promoted``). With one step a host could get the new key from one
replica, and DecryptionError from another. Invariant: no message and no repr contains a seed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from secrets_backend.domain.keys import CurveKey, KeyFormatError, KeyRing
from trellis import names

Manifest = dict[str, Any]


class KeySecretError(ValueError):
    """The Secret has no valid keys; the message names the entry and the problem, and nothing of its content."""


def read_ring(manifest: Mapping[str, Any]) -> KeyRing:
    """Return the keys in a Secret.

    Raises:
        KeySecretError: an entry is missing, or is not a seed of a curve key.
    """
    data = manifest.get("data") or {}
    if names.SECRETS_SEED not in data:
        raise KeySecretError(f"it has no entry {names.SECRETS_SEED}")
    current = _key(names.SECRETS_SEED, _text(data, names.SECRETS_SEED))
    lines = _text(data, names.SECRETS_PREVIOUS).splitlines() if names.SECRETS_PREVIOUS in data else []
    previous = [_key(names.SECRETS_PREVIOUS, line) for line in lines if line.strip()]
    return KeyRing(current, tuple(previous))


def data_of(ring: KeyRing) -> dict[str, str]:
    """Return the ``data`` of the Secret, values in base64 as in the API server."""
    data = {names.SECRETS_SEED: ring.current.seed()}
    if ring.previous:
        data[names.SECRETS_PREVIOUS] = "".join(f"{key.seed()}\n" for key in ring.previous)
    return {entry: base64.b64encode(text.encode()).decode() for entry, text in data.items()}


def announced(ring: KeyRing, key: CurveKey) -> KeyRing:
    """Return the keys after the first step: the new key opens requests, and is not published yet."""
    return KeyRing(ring.current, (key, *ring.previous))


def promoted(ring: KeyRing, key: CurveKey) -> KeyRing:
    """Return the keys after the second step: an announced key is published; the former one still opens requests."""
    return KeyRing(key, _without((ring.current, *ring.previous), key))


def without_previous(ring: KeyRing) -> KeyRing:
    """Return the keys without the former ones."""
    return KeyRing(ring.current)


def _without(keys: Iterable[CurveKey], key: CurveKey) -> tuple[CurveKey, ...]:
    return tuple(fromkey for fromkey in dict.fromkeys(keys) if fromkey != key)


def _text(data: Mapping[str, str], entry: str) -> str:
    try:
        return base64.b64decode(data[entry] or "", validate=True).decode()
    except ValueError:  # invalid base64, or not text
        pass
    raise KeySecretError(f"its entry {entry} is not text")


def _key(entry: str, seed: str) -> CurveKey:
    try:
        return CurveKey.from_seed(seed)
    except KeyFormatError as error:
        reason = str(error)
    raise KeySecretError(f"its entry {entry} is not a seed of a curve key (SX…): {reason}")
