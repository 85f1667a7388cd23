"""Finds the requested object of ``trellis explain``, or the places where a missing one could be.

In: a reader, a kind, a name. Out: the object, or its absence. Called by ``explain_read``. Writes nothing.
Invariant: a forbidden object is never reported as not found.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Collection
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.resources import NAMESPACES, Manifest, Resource
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Absence, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.served import kind_of, list_served

_ALIKE: Final = 0.7


class ObjectNotFoundError(Exception):
    """The requested object does not exist; ``page`` reports it."""

    def __init__(self, page: Explanation) -> None:
        super().__init__(page.headline)
        self.page = page


def name_of(item: Manifest) -> str:
    """Return the name of an object."""
    return str(item["metadata"]["name"])


async def find(reading: Reading, res: Resource, subject: Subject, name: str, namespace: str | None = None) -> Manifest:
    """Return the object of a name, in one namespace or in all.

    Raises:
        ObjectNotFoundError: the object does not exist.
        AnswerError: several namespaces have one, or the kind is not defined in the cluster.
        KubeError: the object could not be read.
    """
    there: list[Manifest] = []
    if res.namespaced:
        there = await listed(reading, res, namespace, fields=f"metadata.name={name}")
    else:
        with contextlib.suppress(NotFound):  # of the object, or of its kind: that shows in the list
            return await reading.kube.get(res, name)
    one_place(res.kind, name, {str(item["metadata"]["namespace"]) for item in there})
    if not there:
        raise ObjectNotFoundError(subject.absent(name, namespace, await absence(reading, res, name, namespace)))
    return there[0]


async def listed(
    reading: Reading, res: Resource, namespace: str | None, *, fields: str | None = None
) -> list[Manifest]:
    """Return the objects of the requested kind.

    Raises:
        AnswerError: no namespace is named, and this account may not read all; or the kind is not defined, or not
            served.
        KubeError: the objects could not be read.
    """
    try:
        found = await list_served(reading.kube, res, namespace, fields=fields)
    except Forbidden as error:
        raise unreadable(error, namespace) from None
    if found is None:
        raise _unknown(reading, res)
    return found


def unreadable(error: KubeError, namespace: str | None) -> Exception:
    """Return the error for a kind that this account cannot read."""
    if namespace is None:
        return AnswerError(f"{error}; this account cannot list all namespaces: use --namespace")
    return error


def one_place(kind: str, name: str, namespaces: set[str]) -> None:
    """Raise AnswerError if several namespaces have an object of this name."""
    if len(namespaces) > 1:
        places = ", ".join(sorted(namespaces))
        raise AnswerError(f"there is a {kind} {name} in namespaces {places}: name one with --namespace")


async def absence(
    reading: Reading, res: Resource, name: str, namespace: str | None, named: Callable[[Manifest], str] = name_of
) -> Absence:
    """Return the places where a missing object could be, as far as this account can read.

    Raises:
        AnswerError: the server does not have the resource type.
        KubeError: the API server is unavailable.
    """
    if namespace is not None and await namespace_is_missing(reading.kube, namespace):
        return Absence(namespace_missing=True)
    try:
        others = await listed(reading, res, None)
    except AnswerError:
        if namespace is None:
            raise
        others = await listed(reading, res, namespace)
    places = {(str(item["metadata"].get("namespace") or ""), named(item)) for item in others}
    elsewhere = sorted(place for place, other in places if other == name and place != namespace)
    return Absence(elsewhere=elsewhere, alike=_alike(name, places))


def _alike(name: str, places: Collection[tuple[str, str]]) -> list[str]:
    """Return similar names as ``namespace/name``, the closest first."""
    near = difflib.get_close_matches(name, {other for _, other in places}, cutoff=_ALIKE)
    likeness = {other: difflib.SequenceMatcher(None, name, other).ratio() for other in near}
    found = [(-likeness[other], f"{place}/{other}".removeprefix("/")) for place, other in places if other in likeness]
    return [key for _, key in sorted(found)]


async def namespace_is_missing(kube: Kube, namespace: str) -> bool:
    """Return True if a namespace does not exist; a forbidden one counts as existing."""
    try:
        await kube.get(NAMESPACES, namespace)
    except NotFound:
        return True
    except Forbidden:
        return False
    return False


def _unknown(reading: Reading, res: Resource) -> AnswerError:
    install = f"install its CRD with `trellis crds apply {res.plural}`, or " if kind_of(res) is not None else ""
    text = f'the server {reading.kube.server} does not have the resource type "{res.plural}"'
    return AnswerError(f"{text}: {install}select another cluster with --context")
