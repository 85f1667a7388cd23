"""Owners of the objects and the Host headers that a conversion writes.

Pure. In: conversions, the present objects. Out: refusals, commands that remove the objects. Called by ``to_v2.apply``.
Invariant: only an object with the label of its own application may be changed, so none of v1 and none of a user.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trellis import names
from trellis.kube.resources import CONFIGMAPS, SERVICES, WORKLOAD_DEPLOYMENTS, Resource
from trellis.lattice.domain.service_views import view_service
from trellis_cli.migrate.model.to_v2.report import Conversion, Manifest

Owner: TypeAlias = tuple[str, str]
"""An application: its namespace, and the value of the label of its objects."""
_KINDS: Final = {res.kind: res for res in (CONFIGMAPS, SERVICES, WORKLOAD_DEPLOYMENTS)}


@dataclass(frozen=True, slots=True)
class Target:
    """An object to write. ``label``: the value of its label."""

    res: Resource
    manifest: Manifest
    label: str

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return name_of(self.manifest)

    @property
    def owner(self) -> Owner:
        """Its namespace and label."""
        return self.namespace, self.label

    @property
    def key(self) -> str:
        """``Service shop/hello``."""
        return f"{self.res.kind} {self.namespace}/{self.name}"


def targets_of(conversions: Iterable[Conversion]) -> list[Target]:
    """Return the objects to write, in order."""
    return [
        Target(_KINDS[manifest["kind"]], manifest, conversion.label)
        for conversion in conversions
        for manifest in conversion.objects
    ]


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return str(manifest["metadata"]["name"])


def refusals(targets: Sequence[Target], existing: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Return why objects must not be written; ``existing``: the present object of each, None if it is missing."""
    found: list[str] = []
    written: dict[str, Target] = {}
    owners = {target.owner for target in targets}
    for target, present in zip(targets, existing, strict=True):
        first = written.setdefault(target.key, target)
        if first is not target:
            found.append(f"applications {first.label} and {target.label} both convert to {target.key}: rename one")
        elif present is not None and (reason := _refusal(target, present, owners)):
            found.append(f"{target.key} {reason}")
    return found


def shared_hosts(conversions: Iterable[Conversion]) -> list[str]:
    """Return the Host headers that two applications have, which v2 routes by: each would get requests of the other."""
    found: list[str] = []
    first: dict[str, str] = {}
    for conversion in conversions:
        for host in dict.fromkeys(route.host for route in conversion.routes):
            former = first.setdefault(host, conversion.key)
            if former != conversion.key:
                found.append(
                    f"applications {former} and {conversion.key} both have the Host header {host}, by which hosts of "
                    "v2 route: set another host in one of them, or convert each alone if they run on different hosts"
                )
    return found


def owner_of(item: Mapping[str, Any]) -> Owner:
    """Return the owner of a present object; its label is "" if it has none."""
    metadata = item["metadata"]
    return metadata["namespace"], str((metadata.get("labels") or {}).get(names.LABEL_MIGRATED_FROM) or "")


def _refusal(target: Target, present: Mapping[str, Any], converted: Collection[Owner]) -> str:
    """Return why an object must not be changed, "" if it may; ``converted``: owners of all objects to write."""
    metadata = present["metadata"]
    _, label = owner = owner_of(present)
    if label == target.label:
        return "is being deleted: repeat the command" if metadata.get("deletionTimestamp") else ""
    if owner in converted:
        return f"is left over from application {label}: run `{deletion(target.res, present)}`, and repeat the command"
    if label:
        return f"belongs to application {label}: rename one of them"
    if target.res is SERVICES and _is_of_v1(present):
        return "belongs to wasmCloud v1: repeat the command"
    return "was not created by this command: rename or delete it, or rename the application"


def _is_of_v1(service: Mapping[str, Any]) -> bool:
    view = view_service(service)
    return bool(view.application or view.of_other_controller)


def deletion(res: Resource, item: Mapping[str, Any]) -> str:
    """Return the command that removes an object."""
    return f"kubectl delete {res.plural} {name_of(item)} --namespace {item['metadata']['namespace']}"


def removal(owners: Iterable[Owner]) -> list[str]:
    """Return one command per namespace that removes the objects of applications."""
    labels: dict[str, set[str]] = {}
    for namespace, label in owners:
        labels.setdefault(namespace, set()).add(label)
    kinds = f"{WORKLOAD_DEPLOYMENTS.definition},{SERVICES.plural},{CONFIGMAPS.plural}"
    return [
        f"kubectl delete {kinds} --namespace {namespace} --selector "
        + shlex.quote(f"{names.LABEL_MIGRATED_FROM} in ({','.join(sorted(found))})")
        for namespace, found in sorted(labels.items())
    ]
