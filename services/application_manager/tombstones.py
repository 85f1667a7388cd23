"""Tombstones: records of Applications whose finalizer was removed while wadm had the application.

In: the Application, and wadm's entry at that time. Out: whether a model is still that entry. Called by ``gather``
and ``apply``. Stored in one ConfigMap. Invariant: a model that has changed since is shown again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names
from trellis.installer_api.json_text import read_json
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, NotFound
from trellis.kube.resources import CONFIGMAPS, Manifest

KEPT: Final = 1000
_ENTRY: Final = re.compile(r"[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """``bucket`` and ``revision``: of wadm's entry; a later revision is a change."""

    lattice: str
    application: str
    bucket: str
    revision: int

    @property
    def key(self) -> str:
        """The key in the ConfigMap: a hash, as names in wadm allow more characters than keys of a ConfigMap."""
        return names.short_hash(self.lattice, self.application)

    def text(self) -> str:
        """Return the tombstone as JSON, readable for users."""
        fields = {"lattice": self.lattice, "application": self.application}
        return json.dumps(fields | {"bucket": self.bucket, "revision": self.revision})


@dataclass(slots=True)
class Tombstones:
    """Tombstones of a namespace, read on first use."""

    kube: Kube
    namespace: str
    _found: dict[str, str] = field(default_factory=dict)
    _read: bool = False

    async def holds(self, lattice: str, application: str, bucket: str, revision: int) -> bool:
        """Return whether a model is unchanged since its object lost the finalizer.

        Raises:
            KubeError: the ConfigMap cannot be read.
        """
        if not self._read:
            await self._get()
        found = _parsed(self._found.get(names.short_hash(lattice, application), ""))
        return found is not None and found.bucket == bucket and revision <= found.revision

    async def store_tombstone(self, stone: Tombstone) -> None:
        """Store a tombstone.

        Raises:
            KubeError: the write failed.
        """
        found = await self._get()
        self._found.pop(stone.key, None)
        kept = {**dict(list(self._found.items())[-KEPT + 1 :]), stone.key: stone.text()}
        if found is None:
            await self._create(kept)
        else:
            read = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
            data = dict.fromkeys(found.get("data") or {}) | kept
            await self.kube.merge_patch(
                CONFIGMAPS,
                names.TOMBSTONES,
                {"metadata": read, "data": data},
                self.namespace,
                field_manager=names.FIELD_MANAGER_APPLICATION_MANAGER,
            )
        self._found = kept

    async def _create(self, data: dict[str, str]) -> None:
        metadata = {"name": names.TOMBSTONES, "namespace": self.namespace}
        labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"labels": labels}, "data": data}
        try:
            await self.kube.create(CONFIGMAPS, made)
        except AlreadyExists:
            self._read = False
            raise

    async def _get(self) -> Manifest | None:
        try:
            found: Manifest | None = await self.kube.get(CONFIGMAPS, names.TOMBSTONES, self.namespace)
        except NotFound:
            found = None
        self._found = {key: text for key, text in ((found or {}).get("data") or {}).items() if _ENTRY.fullmatch(key)}
        self._read = True
        return found


def _parsed(text: str) -> Tombstone | None:
    """Return the tombstone in a value of the ConfigMap; None if the value is invalid."""
    try:
        record: Any = read_json(text)
        return Tombstone(
            str(record["lattice"]), str(record["application"]), str(record["bucket"]), int(record["revision"])
        )
    except (ValueError, TypeError, KeyError):
        return None
