"""The objects of an API server in memory: versions, uids, preconditions, finalizers, history.

In: targets and manifests. Out: manifests, or ``RefusedError`` with the words of a kube-apiserver. Called by
``trellis.kube.fake_server``. Invariant: each change gets the next resource version and one entry in the history.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trellis.kube.resources import NAMESPACES, Manifest, Resource

_NO_GENERATION = {"metadata", "status", "data", "apiVersion", "kind"}


class RefusedError(Exception):
    """An answer other than success: HTTP status, the server's reason and words."""

    def __init__(self, status: int, reason: str, message: str, *, field_at_fault: str | None = None) -> None:
        self.body: Manifest = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": reason,
            "message": message,
        }
        if field_at_fault:
            self.body["details"] = {"causes": [{"field": field_at_fault}]}
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Target:
    """One object's place; ``namespace`` is "" for kinds without."""

    res: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Place in the table of the kind."""
        return (self.namespace, self.name)

    def missing(self) -> RefusedError:
        """Return the answer for an object that is not there."""
        return RefusedError(404, "NotFound", f'{self._label} "{self.name}" not found')

    def conflict(self, message: str) -> RefusedError:
        """Return the answer for an object that is not the one that was read."""
        return RefusedError(409, "Conflict", f'Operation cannot be fulfilled on {self._label} "{self.name}": {message}')

    def immutable_uid(self, uid: str) -> RefusedError:
        """Return the answer for a patch that carries another uid."""
        kind, path = self.res.kind, "metadata.uid"
        message = f'{kind} "{self.name}" is invalid: {path}: Invalid value: "{uid}": field is immutable'
        return RefusedError(422, "Invalid", message, field_at_fault=path)

    def exists(self) -> RefusedError:
        """Return the answer for a name that is taken."""
        return RefusedError(409, "AlreadyExists", f'{self._label} "{self.name}" already exists')

    @property
    def _label(self) -> str:
        return f"{self.res.plural}.{self.res.group}" if self.res.group else self.res.plural


@dataclass(frozen=True, slots=True)
class Happening:
    """One change of an object: before and after."""

    version: int
    old: Manifest | None
    new: Manifest | None


@dataclass
class Table:
    """All objects of a kind, their history, and what each field manager applied last, by uid."""

    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    history: list[Happening] = field(default_factory=list)
    applied: dict[str, dict[str, Manifest]] = field(default_factory=dict)


class FakeStore:
    """Tables of objects under one resource version."""

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.tables = {res: Table() for res in resources}
        self.version = 100
        self.oldest = 0
        self.watchers: set[asyncio.Event] = set()
        for name in ("default", "kube-system"):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.create(Target(NAMESPACES, "", name), namespace)

    def get(self, target: Target) -> Manifest:
        """Return the object, not a copy; raises RefusedError."""
        found = self.tables[target.res].objects.get(target.key)
        if found is None:
            raise target.missing()
        return found

    def create(self, target: Target, manifest: Manifest) -> Manifest:
        """Store a new object with a new uid."""
        if target.key in self.tables[target.res].objects:
            raise target.exists()
        if target.res.namespaced and target.res is not NAMESPACES:
            self.get(Target(NAMESPACES, "", target.namespace))
        new = copy.deepcopy(manifest)
        new["metadata"] |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "generation": 1,
        }
        return self._store(target, None, new)

    def patch(self, target: Target, wanted: Manifest) -> Manifest:
        """Store the outcome of a patch; one that carries another uid or resourceVersion is refused."""
        uid = wanted["metadata"].get("uid")
        if uid != self.get(target)["metadata"]["uid"]:
            raise target.immutable_uid(uid)
        return self.update(target, wanted)

    def update(self, target: Target, wanted: Manifest) -> Manifest:
        """Store a changed object, if uid and resourceVersion, where given, are those of the stored one."""
        old = self.get(target)
        new = copy.deepcopy(wanted)
        _check(target, old, new["metadata"].get("uid"), new["metadata"].get("resourceVersion"))
        kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion")
        new["metadata"] |= {name: old["metadata"][name] for name in kept if name in old["metadata"]}
        new |= {"apiVersion": target.res.api_version, "kind": target.res.kind}
        if new == old:
            return old
        if any(new.get(part) != old.get(part) for part in (new.keys() | old.keys()) - _NO_GENERATION):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._remove(target, new)
        return self._store(target, old, new)

    def delete(self, target: Target, options: Manifest) -> Manifest:
        """Delete an object, or mark it if it has finalizers; preconditions first."""
        old = self.get(target)
        wanted = options.get("preconditions") or {}
        _check(target, old, wanted.get("uid"), wanted.get("resourceVersion"))
        if not old["metadata"].get("finalizers"):
            return self._remove(target, old)
        if "deletionTimestamp" in old["metadata"]:
            return old
        new = copy.deepcopy(old)
        new["metadata"]["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._store(target, old, new)

    def compact(self) -> None:
        """Forget all history: a watch from an older version is Gone."""
        self.oldest = self.version
        for table in self.tables.values():
            table.history.clear()

    def _store(self, target: Target, old: Manifest | None, new: Manifest) -> Manifest:
        table = self.tables[target.res]
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        table.objects[target.key] = new
        self._happened(table, Happening(self.version, old, new))
        return new

    def _remove(self, target: Target, last: Manifest) -> Manifest:
        table = self.tables[target.res]
        self.version += 1
        del table.objects[target.key]
        table.applied.pop(last["metadata"]["uid"], None)
        last = copy.deepcopy(last)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._happened(table, Happening(self.version, last, None))
        return last

    def _happened(self, table: Table, happening: Happening) -> None:
        table.history.append(happening)
        for watcher in self.watchers:
            watcher.set()


def _check(target: Target, old: Manifest, uid: Any, version: Any) -> None:  # noqa: ANN401 - JSON
    found = old["metadata"]
    if uid and uid != found["uid"]:
        raise target.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found['uid']}")
    if version and version != found["resourceVersion"]:
        raise target.conflict("the object has been modified; please apply your changes to the latest version")
