"""Lists a kind for a row of ``trellis status``.

In: a connection, a kind. Out: its objects, or a row with the error. Called by ``status`` and the modules that create
its rows; writes nothing. Invariant: that of ``trellis.read_model.reading.served``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trellis.kube.client import Kube
from trellis.kube.resources import Manifest, Resource
from trellis.read_model.reading.served import NotServedError, list_served
from trellis_cli.status.row import Part


async def list_or_row(kube: Kube, res: Resource, row: str, unknown: Mapping[str, Any]) -> list[Manifest] | Part | None:
    """Return the objects of a kind, None if its CRD is missing, and a row with the error if that is unknown.

    Args:
        kube: connection.
        res: the kind.
        row: name of the row.
        unknown: fields of the row if nothing is known.

    Raises:
        KubeError: they could not be listed although the CRD exists and is served.
    """
    try:
        return await list_served(kube, res)
    except NotServedError as error:
        if error.denied:
            return Part(row, "unknown", data=dict(unknown), unread=str(error))
        return Part(row, "not served", str(error), dict(unknown))
