"""Recorded objects at another time and in other namespaces, so that several situations can be in one cluster.

In: manifests of a recording. Out: manifests. Called by tests of variations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from support.v2.recordings import Manifest, recording

SYSTEM: Final = "wasmcloud-system"
_TIME: Final = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z|\+00:00)"')


def moved(item: Manifest, namespace: str, offset: float, system: str = SYSTEM) -> Manifest:
    """Return an object ``offset`` seconds later, in another namespace; ``system``: that of Hosts."""

    def later(found: re.Match[str]) -> str:
        return f'"{(datetime.fromisoformat(f"{found[1]}+00:00") + timedelta(seconds=offset)).isoformat()}"'

    made: Manifest = json.loads(_TIME.sub(later, json.dumps(item)))
    return {**made, "metadata": {**made["metadata"], "namespace": system if item["kind"] == "Host" else namespace}}


def of_operator(situation: str, at: float, name: str, now: float) -> list[Manifest]:
    """Return the objects of a moment as those of an operator of its own, at ``now`` (Unix seconds).

    Hosts are in namespace ``operator-NAME``, other objects in ``apps-NAME``; the IDs of hosts are other ones.
    """
    found = recording(situation)
    objects = found.objects(at)
    made = (moved(item, f"apps-{name}", now - found.start - at, f"operator-{name}") for item in objects)
    return [_with_other_ids(item, {it["hostId"] for it in objects if it["kind"] == "Host"}, name) for item in made]


def _with_other_ids(item: Manifest, ids: Iterable[str], name: str) -> Manifest:
    text = json.dumps(item)
    for host_id in ids:
        text = text.replace(host_id, f"{host_id}-{name}")
    made: Manifest = json.loads(text)
    return made
