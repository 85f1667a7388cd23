"""A page of a list, of which each object is decoded when it is needed.

In: the body of an answer. Out: the objects, one after the other. Called by ``reader``. Invariants: of a page, one
object at a time is in memory besides the body; an answer that is not a list of the requested kind is rejected as a
whole. Reason: gaps that hundreds of decoded objects leave between those that are kept are not returned to the system:
7 MiB after the first lists of a large cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from trellis.kube.resources import Manifest, Resource
from trellis.kube.shapes import Shape, decoder

decode_page: Final = decoder(
    {"apiVersion": str, "kind": str, "metadata": dict[str, Any], "items": list[msgspec.Raw] | None}
)
"""Decodes a list without its objects; raises ValueError if it is not one."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and the resource version to watch from.

    ``first``: a list starts or restarts, and previous pages are invalid. ``items``: each iteration decodes them,
    and raises ``KubeError`` at an invalid one.
    """

    items: Iterable[Manifest]
    resource_version: str
    first: bool


@dataclass(frozen=True, slots=True)
class Items:
    """The objects of a page. ``raw``: their JSON; decoded objects if the answer could only be decoded completely.

    ``shape``: the decoded keys. ``error``: the exception for an item that is not an object.
    """

    raw: list[Any]
    shape: Shape | None
    error: Callable[[], Exception]

    def __iter__(self) -> Iterator[Manifest]:
        """Yield each object."""
        for raw in self.raw:
            item = self._decoded(raw) if isinstance(raw, msgspec.Raw) else raw
            if not is_object(item):
                raise self.error()
            yield item

    def _decoded(self, raw: msgspec.Raw) -> Any:  # noqa: ANN401 - JSON
        body = memoryview(raw)
        if self.shape is not None:
            with contextlib.suppress(ValueError):  # it does not match the shape
                return self.shape.item(body)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self.error() from None


def is_list_of(res: Resource, found: Any) -> bool:  # noqa: ANN401 - it is JSON
    """Return whether an answer is a list of a kind, not the answer of a proxy with status 200.

    An empty list of another kind would count as the deletion of all objects. The CRD defines the kind of its list; no
    API server uses ``List``.
    """
    if not isinstance(found, dict) or found.get("apiVersion") != res.api_version:
        return False
    kind, metadata, items = str(found.get("kind")), found.get("metadata"), found.get("items") or []
    versioned = isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))
    return kind.removesuffix("List") not in {kind, ""} and versioned and isinstance(items, list)


def is_object(item: object) -> bool:
    """Return whether JSON is an object of Kubernetes."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(metadata, dict) and {"name", "resourceVersion"} <= metadata.keys()
