"""Digests of the versions that wadm stores, each computed once.

Pure. In: applications as stored. Out: version and digest. Called by services that manage applications. Invariant: a
version with changed content has another digest, even under the same name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from trellis.lattice.domain.oam import ManifestError
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.store import StoredManifest, StoredModel


class Digests:
    """Cache of the digests of the last state of each application."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[StoredManifest, str]]] = {}

    def of(self, model: StoredModel) -> tuple[tuple[str, str], ...]:
        """Return versions and digests, the oldest first; see ``trellis.lattice.domain.projection``."""
        former = self._known.get(model.name, {})
        known: dict[str, tuple[StoredManifest, str]] = {}
        for version, manifest in model.versions:
            was = former.get(version)
            digest = was[1] if was is not None and was[0] == manifest else digest_of(manifest.read())
            known[version] = (manifest, digest)
        self._known[model.name] = known
        return tuple((version, digest) for version, (_, digest) in known.items())

    def forget(self, name: str) -> None:
        """Drop the digests of a deleted application."""
        self._known.pop(name, None)


def digest_of(manifest: Mapping[str, Any]) -> str:
    """Return the digest of the projection of a manifest; of an invalid manifest, a digest that no object has."""
    try:
        return project(manifest).digest
    except ManifestError:
        return hashlib.sha256(b"unreadable:" + orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()
