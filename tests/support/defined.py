"""A CRD that is deleted and created again, with objects behind it, on a real API server."""

from __future__ import annotations

import http

from support.fleet import eventually
from trellis.crds.kinds import Kind, make_definition
from trellis.kube.resources import DEFINITIONS, Resource
from trellis.localcluster.api import Api

PATIENCE = 60.0


def delete_definition(api: Api, res: Resource) -> None:
    """Delete a CRD as ``kubectl delete crd`` does: the API server deletes every object of the kind."""
    assert api.call("DELETE", DEFINITIONS.path(None, f"{res.plural}.{res.group}"))[0] == http.HTTPStatus.OK


async def define_again(api: Api, kind: Kind, res: Resource) -> None:
    """Wait until a CRD that was deleted is gone, create it, and wait until its kind is served."""

    def created() -> bool:
        return api.call("POST", DEFINITIONS.path(), make_definition(kind))[0] == http.HTTPStatus.CREATED

    await eventually(created, "the former CRD is gone", seconds=PATIENCE)
    await eventually(lambda: api.ok(res.path()), "the kind is served", seconds=PATIENCE)
