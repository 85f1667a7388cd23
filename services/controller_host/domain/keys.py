"""Keys of objects as text and in the format of the ABI.

Pure. Called by ``lifecycle`` and ``hosting``. Invariant: ``parse_key(key_text(key)) == key``: no part of a key
contains a space.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Key of an object; ``namespace`` is "" for cluster-scoped kinds."""

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
    """Return a key in the format of requests, without ``namespace`` for cluster-scoped kinds."""
    namespace = {"namespace": key.namespace} if key.namespace else {}
    return {"apiVersion": key.api_version, "kind": key.kind, **namespace, "name": key.name}
