"""Size limits of a status: an object has to fit into Kubernetes' storage.

Pure. Called by ``conditions``. Invariants: unhealthy scalers are shown before healthy ones; omitted scalers are
counted; the deployed version is always included. Source: etcd allows 1.5 MiB per object, of which the spec alone may
be 1 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from trellis.lattice.domain.replies import VERSIONS_KEPT, Scaler

Json = dict[str, Any]

SCALERS_BYTES: Final = 256 * 1024
SCALERS_MOST: Final = 4000
VERSIONS_BYTES: Final = 64 * 1024
_WELL: Final = "deployed"


def scalers_of(scalers: Sequence[Scaler]) -> tuple[list[Json], int]:
    """Return the scalers of wadm that fit, in its order, and the number of omitted ones."""
    rows = [_row(item) for item in scalers]
    order = sorted(range(len(rows)), key=lambda at: rows[at]["status"] == _WELL)
    kept = set(_first_within(((at, _size(rows[at])) for at in order[:SCALERS_MOST]), SCALERS_BYTES))
    return [row for at, row in enumerate(rows) if at in kept], len(rows) - len(kept)


def versions_of(names: Sequence[str], deployed: str) -> list[Json]:
    """Return the versions in wadm, the oldest first: the newest ones that fit, and the deployed one."""
    newest = list(reversed(names))[: VERSIONS_KEPT - 1]
    kept = set(_first_within(((name, _size(name)) for name in newest), VERSIONS_BYTES)) | {deployed}
    return [{"version": name, "deployed": name == deployed} for name in names if name in kept]


def _row(scaler: Scaler) -> Json:
    found = {"kind": scaler.kind, "name": scaler.name, "status": scaler.status}
    return found | ({"message": scaler.message} if scaler.message else {})


def _first_within(sizes: Iterable[tuple[Any, int]], limit: int) -> Iterable[Any]:
    for key, size in sizes:
        limit -= size
        if limit < 0:
            return
        yield key


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
