"""Remaining parts of wasmcloud-operator: its account, its permissions, its Service, and the CRD of host groups.

Pure: raw objects in, steps out. The steps write nothing; each has the command with which the user removes the part.
Called by ``migrate.wasmcloud``. Invariant: a command that would delete host groups has a warning.
Source: the chart of the operator (``wasmcloud-operator`` to 0.5.0, ``wadm-operator`` since) and its ``deploy/base``; an
umbrella chart contains it in one release with NATS, wadm and the host groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trellis.provisioning.other_controllers import NAMES, Peer, is_of, view_controller
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, Manifest, mirrors_application, place_of

_RELEASE: Final = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
"""Annotations of objects of a Helm release."""
_NAME_LABELS: Final = ("app.kubernetes.io/name", "app.kubernetes.io/part-of", "app")
_NAMES: Final = NAMES[Peer.WASMCLOUD_OPERATOR]
_DELEGATOR: Final = "-delegator"


def plan_rest(former: Former) -> list[Step]:
    """Return the parts of the operator to remove, and those to keep."""
    return [*_parts(former), *_definition(former)]


def warnings_of(former: Former) -> list[str]:
    """Return warnings about commands that would delete host groups."""
    if former.definition is None or not former.groups:
        return []
    name, count = former.definition["metadata"]["name"], len(former.groups)
    releases = sorted({found for group in former.groups if (found := _release(group.manifest))})
    return [
        f"do NOT delete the CustomResourceDefinition {name}: that would delete all {count} host groups",
        *(
            f"do NOT uninstall the Helm release {namespace}/{name}: that would delete its host groups"
            for namespace, name in releases
        ),
    ]


def _parts(former: Former) -> Iterable[Step]:
    parts = [item for item in former.deployments if is_of(Peer.WASMCLOUD_OPERATOR, item) and not _runs(item)]
    parts += [item for item in former.services if _is_named_so(item) and not mirrors_application(item)]
    parts += _accounts_and_roles(former)
    shared = {_release(group.manifest) for group in former.groups}
    when = "not needed once the operator is removed" if any(map(_runs, former.deployments)) else "no longer needed"
    for item in sorted(parts, key=place_of):
        reason = f"{when}: {_command(item, shared)}"
        yield Step(place_of(item), "part of wasmcloud-operator", Doing.LEAVE, reason)


def _runs(deployment: Manifest) -> bool:
    return view_controller(deployment, (Peer.WASMCLOUD_OPERATOR,)) is not None


def _accounts_and_roles(former: Former) -> list[Manifest]:
    """Return the accounts of the operator, its roles, and the bindings of the accounts to any role."""
    accounts = [item for item in former.objects if item["kind"] == "ServiceAccount" and _is_named_so(item)]
    keys = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in accounts}
    bindings = [
        item
        for item in former.objects
        if item["kind"] == "ClusterRoleBinding" and (_is_named_so(item) or _binds(item, keys))
    ]
    roles = [item for item in former.objects if item["kind"] == "ClusterRole" and _is_named_so(item)]
    return [*accounts, *bindings, *roles]


def _is_named_so(item: Mapping[str, Any]) -> bool:
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    return metadata["name"].removesuffix(_DELEGATOR) in _NAMES or any(
        labels.get(name) in _NAMES for name in _NAME_LABELS
    )


def _binds(binding: Mapping[str, Any], accounts: set[tuple[str, str]]) -> bool:
    subjects = binding.get("subjects") or ()
    return bool(subjects) and all((subject.get("namespace"), subject.get("name")) in accounts for subject in subjects)


def _release(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return namespace and name of the Helm release of an object."""
    annotations = item["metadata"].get("annotations") or {}
    namespace, name = (annotations.get(key) for key in _RELEASE)
    return (namespace, name) if namespace and name else None


def _command(item: Manifest, shared: set[tuple[str, str] | None]) -> str:
    """Return the command that removes a part; ``shared``: Helm releases that contain host groups."""
    metadata = item["metadata"]
    namespace = f"-n {metadata['namespace']} " if metadata.get("namespace") else ""
    delete = f"kubectl {namespace}delete {item['kind'].lower()} {metadata['name']}"
    release = _release(item)
    if release is None:
        return delete
    where = f"-n {release[0]}"
    if release in shared:
        return f"{delete}; not with Helm: host groups are in the same release {release[1]}"
    return (
        f"helm {where} uninstall {release[1]}, which removes the whole release; "
        f"check it first with: helm {where} get manifest {release[1]}"
    )


def _definition(former: Former) -> Iterable[Step]:
    if former.definition is not None:
        reason = "Trellis uses it. Never delete it: that would delete every host group with its hosts"
        yield Step(place_of(former.definition), f"CRD of {len(former.groups)} host groups", Doing.LEAVE, reason)
