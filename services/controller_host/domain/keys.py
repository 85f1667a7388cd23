"""Keys of objects as text and as the ABI has them.

Pure. Called by ``lifecycle`` and ``hosting``. Invariant: ``parse_key(key_text(key)) == key``: no part of a key has a
space.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Which object; ``namespace`` is "" for kinds without."""

    api_version: str
    kind: str
    namespace: str
    name: str


def key_text(key: ObjectKey) -> str:
    """Return a key as one line: ``v1 ConfigMap team-a settings``."""
    return f"{key.api_version} {key.kind} {key.namespace} {key.name}"


def parse_key(text: str) -> ObjectKey:
    """Return the key of a line that ``key_text`` made."""
    api_version, kind, namespace, name = text.split(" ")
    return ObjectKey(api_version, kind, namespace, name)


def reference(key: ObjectKey) -> dict[str, str]:
    """Return a key as requests have it; what has no namespace has none there."""
    namespace = {"namespace": key.namespace} if key.namespace else {}
    return {"apiVersion": key.api_version, "kind": key.kind, **namespace, "name": key.name}
