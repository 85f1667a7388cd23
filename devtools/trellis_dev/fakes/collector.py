"""Garbage collection and namespace deletion, for the in-memory API server.

In: changes of a ``FakeStore``. Out: further deletions and changes in it. Called by ``trellis_dev.fakes.store``.
The controllers of a cluster need a moment for this; here it is complete before the response. Services must behave the
same in both cases, and the behaviour suite, which waits, does.
Source: "Garbage Collection" and "Owners and Dependents" of the Kubernetes documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from trellis.kube.resources import NAMESPACES, Manifest
from trellis_dev.fakes.refusals import Target

if TYPE_CHECKING:
    from trellis_dev.fakes.store import FakeStore

_FOREGROUND: Final = "foregroundDeletion"


class Collector:
    """Deletes objects whose owners or namespace no longer exist."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def created(self, target: Target, new: Manifest) -> None:
        """Delete an object if all its owners are already deleted."""
        owners = _owners(new)
        if owners and not any(self._exists(owner["uid"]) for owner in owners):
            self._store.delete(target, {})

    def prepare_deletion(self, target: Target, old: Manifest, propagation: str) -> bool:
        """Prepare a deletion; return whether the object has to stay until its dependents are deleted."""
        uid = old["metadata"]["uid"]
        dependents = list(self._dependents(uid))
        if propagation == "Orphan":
            for place, dependent in dependents:
                self._disown(place, dependent, uid)
        if propagation != "Foreground" or not dependents:
            return False
        self._start_foreground(target, old)
        for place, _ in dependents:
            self._delete(place, "Foreground")
        self._release(target)
        return True

    def empty_namespace(self, name: str) -> None:
        """Empty a namespace; it is deleted with the last of its objects."""
        for place, _ in list(self._inside(name)):
            self._delete(place, "Background")
        self._end_namespace(name)

    def removed(self, target: Target, last: Manifest) -> None:
        """Handle the remains of a deleted object: dependents, an owner that waits for it, its namespace."""
        uid = last["metadata"]["uid"]
        for place, dependent in list(self._dependents(uid)):
            others = [owner for owner in _owners(dependent) if owner["uid"] != uid and self._exists(owner["uid"])]
            if others:
                self._disown(place, dependent, uid)
            else:
                self._delete(place, "Background")
        for owner in _owners(last):
            for place, found in list(self._all()):
                if found["metadata"]["uid"] == owner["uid"] and _FOREGROUND in _finalizers(found):
                    self._release(place)
        if target.namespace:
            self._end_namespace(target.namespace)

    def _delete(self, target: Target, propagation: str) -> None:
        """Delete an object unless it was deleted together with another."""
        if target.key in self._store.tables[target.res].objects:
            self._store.delete(target, {"propagationPolicy": propagation})

    def _release(self, target: Target) -> None:
        """Delete an owner in foreground deletion if no dependent blocks it."""
        owner = self._store.tables[target.res].objects.get(target.key)
        if owner is None or any(
            reference.get("blockOwnerDeletion")
            for _, dependent in self._dependents(owner["metadata"]["uid"])
            for reference in _owners(dependent)
            if reference["uid"] == owner["metadata"]["uid"]
        ):
            return
        left = [name for name in _finalizers(owner) if name != _FOREGROUND]
        self._store.update(target, owner | {"metadata": owner["metadata"] | {"finalizers": left}})

    def _start_foreground(self, target: Target, old: Manifest) -> None:
        if _FOREGROUND not in _finalizers(old):
            metadata = old["metadata"] | {"finalizers": [*_finalizers(old), _FOREGROUND]}
            self._store.update(target, old | {"metadata": metadata})
        self._store.mark_deleted(target)

    def _end_namespace(self, name: str) -> None:
        target = Target(NAMESPACES, "", name)
        namespace = self._store.tables[NAMESPACES].objects.get(target.key)
        if namespace and "deletionTimestamp" in namespace["metadata"] and not any(self._inside(name)):
            self._store.remove(target, namespace)

    def _disown(self, target: Target, dependent: Manifest, uid: str) -> None:
        left = [owner for owner in _owners(dependent) if owner["uid"] != uid]
        metadata = {key: value for key, value in dependent["metadata"].items() if key != "ownerReferences"}
        self._store.update(target, dependent | {"metadata": metadata | ({"ownerReferences": left} if left else {})})

    def _all(self) -> Iterator[tuple[Target, Manifest]]:
        for res, table in self._store.tables.items():
            for (namespace, name), manifest in table.objects.items():
                yield Target(res, namespace, name), manifest

    def _dependents(self, uid: str) -> Iterator[tuple[Target, Manifest]]:
        return (pair for pair in self._all() if any(owner["uid"] == uid for owner in _owners(pair[1])))

    def _inside(self, namespace: str) -> Iterator[tuple[Target, Manifest]]:
        return (pair for pair in self._all() if pair[0].namespace == namespace)

    def _exists(self, uid: str) -> bool:
        return any(manifest["metadata"]["uid"] == uid for _, manifest in self._all())


def _owners(manifest: Manifest) -> list[dict[str, Any]]:
    return list(manifest["metadata"].get("ownerReferences") or ())


def _finalizers(manifest: Manifest) -> list[str]:
    return list(manifest["metadata"].get("finalizers") or ())
