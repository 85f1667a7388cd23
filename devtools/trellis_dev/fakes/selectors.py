"""Label and field selectors, for the in-memory API server.

Pure: the text of a query and the labels of an object in, whether it matches out; ``RefusedError`` with the message of
a kube-apiserver for an invalid selector. Called by ``trellis_dev.fakes.server``.
Source: "Labels and Selectors" and "Field Selectors" of the Kubernetes documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trellis.kube.resources import Manifest
from trellis.kube.transport import HttpRequest
from trellis_dev.fakes.refusals import RefusedError

_TERMS: Final = re.compile(r",(?![^()]*\))")
_SET: Final = re.compile(r"^(?P<key>[^\s()=!]+)\s+(?P<how>in|notin)\s+\((?P<values>[^()]*)\)$")
_EQUAL: Final = re.compile(r"^(?P<key>[^\s()=!]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^\s()=!]*)$")
_EXISTS: Final = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s()=!]+)$")
_FIELDS: Final = ("metadata.name", "metadata.namespace")
_POD_FIELDS: Final = (*_FIELDS, "spec.nodeName")
_EVENT_FIELDS: Final = (
    *_FIELDS,
    "type",
    "reason",
    "reportingComponent",
    "involvedObject.kind",
    "involvedObject.uid",
)


def selected(manifest: Manifest, namespace: str, request: HttpRequest) -> bool:
    """Return whether an object belongs to a list or watch of ``namespace`` ("" means all)."""
    metadata = manifest["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
        "spec.nodeName": (manifest.get("spec") or {}).get("nodeName", ""),
        "type": str(manifest.get("type") or ""),
        "reason": str(manifest.get("reason") or ""),
        "reportingComponent": str(manifest.get("reportingComponent") or ""),
        "involvedObject.kind": str((manifest.get("involvedObject") or {}).get("kind", "")),
        "involvedObject.uid": str((manifest.get("involvedObject") or {}).get("uid", "")),
    }
    return _all_hold(request.query.get("labelSelector", ""), metadata.get("labels") or {}) and _all_hold(
        request.query.get("fieldSelector", ""), fields
    )


def check(request: HttpRequest) -> None:
    """Raise RefusedError for an invalid selector."""
    _all_hold(request.query.get("labelSelector", ""), {})
    fields = {"pods": _POD_FIELDS, "events": _EVENT_FIELDS}.get(request.path.rpartition("/")[2], _FIELDS)
    for term in _terms(request.query.get("fieldSelector", "")):
        key = term.split("=")[0].rstrip("!")
        if key not in fields:
            known = ", ".join(f'"{name}"' for name in fields)
            raise RefusedError(400, "BadRequest", f'"{key}" is not a known field selector: only {known}')


def _terms(selector: str) -> list[str]:
    return [term.strip() for term in _TERMS.split(selector)] if selector else []


def _all_hold(selector: str, values: Mapping[str, str]) -> bool:
    # All terms are evaluated: an invalid term is rejected even if an earlier one does not match.
    matches = [_holds(term, values) for term in _terms(selector)]
    return all(matches)


def _holds(term: str, values: Mapping[str, str]) -> bool:
    if found := _SET.match(term):
        among = values.get(found["key"]) in {value.strip() for value in found["values"].split(",")}
        return among if found["how"] == "in" else not among
    if found := _EQUAL.match(term):
        equal = values.get(found["key"]) == found["value"]
        return equal if found["how"] != "!=" else not equal
    if found := _EXISTS.match(term):
        return (found["key"] in values) is not bool(found["not"])
    raise RefusedError(400, "BadRequest", f"unable to parse requirement: {term}")
