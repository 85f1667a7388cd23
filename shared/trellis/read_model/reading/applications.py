"""Reads Applications.

In: a connection. Out: manifests. Called by the modules that show applications. Writes nothing.
"""

from __future__ import annotations

from trellis.crds.kinds import APPLICATIONS as KIND
from trellis.kube.client import Kube
from trellis.kube.crd_ownership import standing_of
from trellis.kube.resources import APPLICATIONS, Manifest
from trellis.read_model.errors import AnswerError
from trellis.read_model.reading.served import list_served


async def read_apps(kube: Kube, namespace: str | None = None) -> list[Manifest]:
    """Return all Applications, by namespace and name.

    Raises:
        AnswerError: the kind is not defined, not served, or owned by another controller.
        KubeError: they could not be read.
    """
    found = await list_served(kube, APPLICATIONS, namespace)
    if found is None:
        raise AnswerError(standing_of(KIND, None, None).message)
    return sorted(found, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))
