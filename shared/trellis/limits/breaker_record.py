"""Serializes the state of circuit breakers to a ConfigMap.

Pure: states in, manifest out, and back. Called by ``trellis.kube.breaker`` and the command line. Invariants: decoding
an encoded state returns the same state; any other text decodes to None and never raises; 10,000 paused objects need 130
kB, far below the limit of a ConfigMap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from trellis import names
from trellis.installer_api.json_text import read_json
from trellis.limits.breaker import Admission, Closing, Opening, State

Manifest = dict[str, Any]
_SPAN_MAX: Final = 7 * 86_400.0
"""Maximum duration of a pause or permission, in seconds."""
_LATEST: Final = 1e11  # Unix seconds that can still be written as a date


def make_breakers(service: str, namespace: str, states: Mapping[str, State], resource_version: str | None) -> Manifest:
    """Return the ConfigMap of a service (``node_watcher``), with one key per kind.

    With the resourceVersion of the last read, the write is a compare-and-swap.
    """
    metadata: Manifest = {
        "name": names.circuit_breaker_name(service),
        "namespace": namespace,
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_CIRCUIT_BREAKER: service.replace("_", "-")},
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    data = {kind: encode(state) for kind, state in sorted(states.items())}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def read_breakers(manifest: Manifest) -> dict[str, State | None]:
    """Return the state of each kind in a ConfigMap, or None for an invalid text."""
    data = manifest.get("data")
    return {kind: decode(text) for kind, text in data.items()} if isinstance(data, dict) else {}


def encode(state: State) -> str:
    """Return a state as canonical JSON."""
    document: dict[str, Any] = {
        "admissions": [
            {"at": admission.at, "population": admission.population, "objects": sorted(admission.tokens)}
            for admission in state.admissions
        ]
    }
    if (opening := state.opening) is not None:
        document["open"] = {
            "since": opening.since,
            "until": opening.until,
            "reason": opening.reason,
            "paused": sorted(opening.paused),
            "examples": list(opening.examples),
        }
    if (closing := state.closing) is not None:
        document["closed"] = {
            "at": closing.at,
            "until": closing.until,
            "by": closing.by,
            "everything": closing.everything,
            "permitted": sorted(closing.permitted),
        }
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def decode(text: object) -> State | None:
    """Return the state of a JSON text, or None if it is invalid."""
    try:
        document = read_json(text) if isinstance(text, str) else None
        return _state(document) if isinstance(document, dict) else None
    except (ValueError, KeyError, TypeError):
        return None


def _state(document: Mapping[str, Any]) -> State:
    admissions = tuple(
        Admission(_time(admission["at"]), _count(admission["population"]), _tokens(admission["objects"]))
        for admission in document["admissions"]
    )
    opening = closing = None
    if (found := document.get("open")) is not None:
        since, until = _span(found["since"], found["until"])
        opening = Opening(
            since, until, _text(found["reason"]), _tokens(found["paused"]), tuple(_texts(found["examples"]))
        )
    if (found := document.get("closed")) is not None:
        at, until = _span(found["at"], found["until"])
        everything = found["everything"]
        if not isinstance(everything, bool):
            raise TypeError
        closing = Closing(at, until, _text(found["by"]), everything, _tokens(found["permitted"]))
    return State(admissions, opening, closing)


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise TypeError
    return float(value)


def _span(begin: object, end: object) -> tuple[float, float]:
    """Return both ends; raises ValueError for more than a week, which Trellis never writes."""
    first, last = _time(begin), _time(end)
    if not 0 <= last - first <= _SPAN_MAX:
        raise ValueError
    return first, last


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError
    return [_text(item) for item in value]


def _tokens(value: object) -> frozenset[str]:
    return frozenset(_texts(value))
