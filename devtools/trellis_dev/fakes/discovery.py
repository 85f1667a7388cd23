"""Discovery for the in-memory API server: the versions of a group, the resources of a group and version.

Pure. In: a path and the resources. Out: an ``APIGroup`` or ``APIResourceList``, or ``RefusedError`` with the message of
a kube-apiserver. Called by ``trellis_dev.fakes.server``. Not simulated: subresources, resources without list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from trellis.kube.resources import Manifest, Resource
from trellis_dev.fakes.refusals import RefusedError

_VERSION: Final = re.compile(r"/api/(?P<core>[^/]+)|/apis/(?P<group>[^/]+/[^/]+)")
_GROUP: Final = re.compile(r"/apis/([^/]+)")
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]


def version_of(path: str) -> str | None:
    """Return the ``apiVersion`` of a discovery path, None for any other path."""
    found = _VERSION.fullmatch(path)
    return None if found is None else found["core"] or found["group"]


def group_of(path: str) -> str | None:
    """Return the group of a discovery path, None for any other path."""
    found = _GROUP.fullmatch(path)
    return None if found is None else found[1]


def versions_of(group: str, resources: Iterable[Resource]) -> Manifest:
    """Return the APIGroup of a group."""
    versions = sorted({res.version for res in resources if res.group == group})
    if not versions:
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": listed}


def kinds_of(api_version: str, resources: Iterable[Resource]) -> Manifest:
    """Return the APIResourceList of a group and version."""
    of_it = [res for res in resources if res.api_version == api_version]
    if not of_it:
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")
    listed = [{"name": res.plural, "kind": res.kind, "namespaced": res.namespaced, "verbs": _VERBS} for res in of_it]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}
