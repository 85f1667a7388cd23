"""Validation of objects of any kind by a kube-apiserver, for the in-memory API server.

Pure: targets and manifests in; nothing out, or ``RefusedError`` with the message of the server. Called by
``trellis_dev.fakes.server`` and ``trellis_dev.fakes.store``. Validation of a single kind is not simulated, except for
the maximum size of ConfigMaps, which services have to observe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from trellis.kube.resources import CONFIGMAPS, Manifest
from trellis_dev.fakes.refusals import RefusedError, Target

_REQUEST_MAX: Final = 3 * 2**20
_CONFIGMAP_MAX: Final = 2**20
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX: Final = 253


def check_size(body: bytes | None) -> None:
    """Reject a request above the size limit of the server."""
    if body and len(body) > _REQUEST_MAX:
        raise RefusedError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_REQUEST_MAX}")


def check_identity(target: Target, manifest: Mapping[str, Any]) -> None:
    """Reject a body whose kind or name differs from the URL."""
    kind = manifest.get("kind", target.res.kind)
    if kind != target.res.kind:
        version = manifest.get("apiVersion", target.res.api_version)
        message = f'{kind} in version "{version}" cannot be handled as a {target.res.kind}'
        raise RefusedError(400, "BadRequest", message)
    name = manifest.get("metadata", {}).get("name", target.name)
    if name != target.name:
        message = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise RefusedError(400, "BadRequest", message)


def check_new(target: Target, manifest: Manifest) -> None:
    """Reject an invalid new object."""
    if manifest["metadata"].get("resourceVersion"):
        raise RefusedError(500, "", "resourceVersion should not be set on objects to be created")
    if len(target.name) > _NAME_MAX or not _NAME.fullmatch(target.name):
        raise target.invalid(
            f'metadata.name: Invalid value: "{target.name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        )


def check_content(target: Target, old: Manifest | None, new: Manifest) -> None:
    """Reject an object with invalid or immutable content."""
    if target.res is CONFIGMAPS:
        values = list((new.get("data") or {}).values())
        if not all(isinstance(value, str) for value in values):
            message = (
                'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal data of type string'
            )
            raise RefusedError(400, "BadRequest", message)
        if sum(map(len, values)) > _CONFIGMAP_MAX:
            raise target.invalid(f"[]: Too long: may not be more than {_CONFIGMAP_MAX} bytes")
    if old is not None and "deletionTimestamp" in old["metadata"]:
        had = set(old["metadata"].get("finalizers") or ())
        if added := [name for name in new["metadata"].get("finalizers") or () if name not in had]:
            raise target.invalid(
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers {added}"
            )
