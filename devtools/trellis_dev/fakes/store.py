"""The objects of the in-memory API server: versions, uids, preconditions, finalizers, history.

In: targets and manifests. Out: manifests, or ``RefusedError`` with the message of a kube-apiserver. Called by
``trellis_dev.fakes.server``. Invariant: each change gets the next resource version and one entry in the history.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trellis.kube.resources import NAMESPACES, Manifest, Resource
from trellis_dev.fakes.collector import Collector
from trellis_dev.fakes.fields import FieldOwners
from trellis_dev.fakes.refusals import RefusedError, Target
from trellis_dev.fakes.rules import check_content, check_new

__all__ = ["FakeStore", "ObjectChange", "RefusedError", "Table", "Target"]

_NO_GENERATION = {"metadata", "status", "data", "apiVersion", "kind"}


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change of an object: before and after."""

    version: int
    old: Manifest | None
    new: Manifest | None


@dataclass
class Table:
    """All objects of a kind, their history, and their field owners by uid."""

    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    history: list[ObjectChange] = field(default_factory=list)
    owners: dict[str, FieldOwners] = field(default_factory=dict)


class FakeStore:
    """Tables of objects under one resource version."""

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.tables = {res: Table() for res in resources}
        self.version = 100
        self.oldest = 0
        self.watchers: set[asyncio.Event] = set()
        self._collector = Collector(self)
        for name in ("default", "kube-system"):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.create(Target(NAMESPACES, "", name), namespace)

    def get(self, target: Target) -> Manifest:
        """Return the object, not a copy. Raise RefusedError if it does not exist."""
        found = self.tables[target.res].objects.get(target.key)
        if found is None:
            raise target.missing()
        return found

    def create(self, target: Target, manifest: Manifest) -> Manifest:
        """Store a new object with a new uid."""
        check_new(target, manifest)
        if (existing := self.tables[target.res].objects.get(target.key)) is not None:
            raise target.exists(deleting="deletionTimestamp" in existing["metadata"])
        if target.res.namespaced:
            space = self.get(Target(NAMESPACES, "", target.namespace))
            if "deletionTimestamp" in space["metadata"]:
                raise target.terminating()
        check_content(target, None, manifest)
        new = copy.deepcopy(manifest)
        new["metadata"] |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "generation": 1,
        }
        self._store(target, None, new)
        self._collector.created(target, new)
        return new

    def patch(self, target: Target, wanted: Manifest) -> Manifest:
        """Store the result of a patch; a patch with a different uid or resourceVersion is rejected."""
        old, uid = self.get(target), wanted["metadata"].get("uid")
        _check_version(target, old, wanted["metadata"].get("resourceVersion"))
        if uid != old["metadata"]["uid"]:
            raise target.immutable_uid(uid)
        return self.update(target, wanted)

    def update(self, target: Target, wanted: Manifest) -> Manifest:
        """Store a changed object, if its uid and resourceVersion, where set, match the stored ones."""
        old = self.get(target)
        new = copy.deepcopy(wanted)
        _check(target, old, new["metadata"].get("uid"), new["metadata"].get("resourceVersion"))
        kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion")
        new["metadata"] |= {name: old["metadata"][name] for name in kept if name in old["metadata"]}
        new |= {"apiVersion": target.res.api_version, "kind": target.res.kind}
        if new == old:
            return old
        check_content(target, old, new)
        if any(new.get(part) != old.get(part) for part in (new.keys() | old.keys()) - _NO_GENERATION):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self.remove(target, new)
        return self._store(target, old, new)

    def delete(self, target: Target, options: Manifest) -> Manifest:
        """Delete an object, or mark it if it has finalizers; check preconditions first."""
        old = self.get(target)
        for what, field_name in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
            wanted, found = (options.get("preconditions") or {}).get(field_name), old["metadata"][field_name]
            if wanted and wanted != found:
                raise target.conflict(
                    f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})"
                )
        if target.res is NAMESPACES:
            self.mark_deleted(target)
            self._collector.empty_namespace(target.name)
            return self.tables[target.res].objects.get(target.key, old)
        if self._collector.prepare_deletion(target, old, options.get("propagationPolicy", "Background")):
            return self.tables[target.res].objects.get(target.key, old)
        if not old["metadata"].get("finalizers"):
            return self.remove(target, old)
        return self.mark_deleted(target)

    def mark_deleted(self, target: Target) -> Manifest:
        """Set the deletionTimestamp of an object once; finalizers keep the object."""
        old = self.get(target)
        if "deletionTimestamp" in old["metadata"]:
            return old
        new = copy.deepcopy(old)
        new["metadata"]["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._store(target, old, new)

    def remove(self, target: Target, last: Manifest) -> Manifest:
        """Remove an object from its table, and its dependents."""
        table = self.tables[target.res]
        self.version += 1
        del table.objects[target.key]
        table.owners.pop(last["metadata"]["uid"], None)
        last = copy.deepcopy(last)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._record(table, ObjectChange(self.version, last, None))
        self._collector.removed(target, last)
        return last

    def compact(self) -> None:
        """Delete the history: a watch from an older version gets Gone."""
        self.oldest = self.version
        for table in self.tables.values():
            table.history.clear()

    def _store(self, target: Target, old: Manifest | None, new: Manifest) -> Manifest:
        table = self.tables[target.res]
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        table.objects[target.key] = new
        self._record(table, ObjectChange(self.version, old, new))
        return new

    def _record(self, table: Table, change: ObjectChange) -> None:
        table.history.append(change)
        for watcher in self.watchers:
            watcher.set()


def _check(target: Target, old: Manifest, uid: Any, version: Any) -> None:  # noqa: ANN401 - JSON
    found = old["metadata"]
    if uid and uid != found["uid"]:
        raise target.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found['uid']}")
    _check_version(target, old, version)


def _check_version(target: Target, old: Manifest, version: Any) -> None:  # noqa: ANN401 - JSON
    if version and version != old["metadata"]["resourceVersion"]:
        raise target.conflict(
            "the object has been modified; please apply your changes to the latest version and try again"
        )
