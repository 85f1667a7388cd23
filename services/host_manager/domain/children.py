"""Children of a host group, and their differences from the existing ones.

Pure. Called by ``decide``. Invariant: a child without differences is not written: it has the digest of the applied
manifest as a label, and its current fields are compared with those to apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from host_manager.domain.group import ADOPTED, LATEST, Group, HostGroupSpec, Inputs, Manifest
from host_manager.domain.resources import (
    make_budget,
    make_config_map,
    make_registry_secret,
    make_role,
    make_role_binding,
    make_service,
    make_service_account,
    make_workload,
)
from host_manager.domain.takeover import is_applied_by_us
from host_manager.domain.template import make_pod_template
from trellis import names
from trellis.installer_api.parse_int import whole

ChildKey = tuple[str, str]
"""Kind and name of a child."""
WORKLOADS: Final = ("Deployment", "DaemonSet")


@dataclass(frozen=True, slots=True)
class TemplateLabel:
    """Label of a Deployment or DaemonSet of Trellis.

    Revision of the pod template, and digest of its inputs (the basis).
    """

    revision: int
    basis: str

    def __str__(self) -> str:
        return f"{self.revision}.{self.basis}"


def child_keys(group: Group) -> list[ChildKey]:
    """Return every child that a group may have."""
    kinds = ("ConfigMap", "ServiceAccount", "Role", "RoleBinding", *WORKLOADS, "Service", "PodDisruptionBudget")
    return [*((kind, group.name) for kind in kinds), ("Secret", names.registry_secret(group.name))]


def read_template_label(workload: Mapping[str, Any]) -> TemplateLabel | None:
    """Return the template label of a workload, None if it has none."""
    text = (workload["metadata"].get("labels") or {}).get(names.LABEL_TEMPLATE, "")
    revision, _, basis = text.partition(".")
    number = whole(revision)
    return TemplateLabel(number, basis) if number is not None and basis else None


def workload_of(children: Mapping[ChildKey, Manifest | None], name: str) -> Manifest | None:
    """Return the workload of a host group, None if there is none."""
    found = (children.get((kind, name)) for kind in WORKLOADS)
    return next((child for child in found if child is not None), None)


def basis_of(group: Group, inputs: Inputs) -> str:
    """Return the digest of all inputs of the pods of a host group.

    It covers the template of revision 1, which never changes, and the fields of the spec that later revisions add: so
    no new version of Trellis changes the digest, only the user does.
    """
    spec = group.spec
    template = make_pod_template(HostGroupSpec(group, inputs, ADOPTED))
    later = {
        "leafTls": spec.leaf_tls.model_dump() if spec.leaf_tls else None,
        "drainSeconds": spec.drain_seconds,
        "daemonset": group.runs_as_daemonset(ADOPTED),
    }
    present = {name: value for name, value in later.items() if value is not None}
    text = orjson.dumps([template, present], option=orjson.OPT_SORT_KEYS).decode()
    return names.short_hash(text, inputs.checksum)


def template_label_for(
    group: Group, inputs: Inputs, workload: Manifest | None, *, latest_requested: bool, recorded: int | None = None
) -> TemplateLabel:
    """Return the revision for the pods of a host group, and its basis.

    ``workload``: the current one. ``latest_requested``: the user requests the latest revision. ``recorded``: the
    revision in the group's status, for a workload of Trellis whose label a user removed. See ADR 30.
    """
    basis = basis_of(group, inputs)
    if latest_requested or workload is None:
        return TemplateLabel(LATEST, basis)
    found = read_template_label(workload)
    if found is None:
        return TemplateLabel(recorded if recorded is not None and is_applied_by_us(workload) else ADOPTED, basis)
    return TemplateLabel(found.revision if found.basis == basis else LATEST, basis)


def make_children(desired: HostGroupSpec, template_label: TemplateLabel, *, budget: bool) -> list[Manifest]:
    """Return the children of a host group in the order of their writes: first those that pods need to start.

    Raises:
        TemplateError: an addition of the user to the pods has an invalid type.
    """
    group = desired.group
    workload = make_workload(desired)
    workload["metadata"]["labels"][names.LABEL_TEMPLATE] = str(template_label)
    children = [
        make_config_map(desired),
        make_service_account(group),
        *([make_registry_secret(desired)] if desired.inputs.registries else []),
        workload,
        make_role(group),
        make_service(group),
        *([make_budget(group)] if budget and workload["kind"] == "Deployment" else []),
        make_role_binding(group),
    ]
    return [_signed(child) for child in children]


def _signed(child: Manifest) -> Manifest:
    """Return a child with the digest of its manifest as a label."""
    digest = names.short_hash(orjson.dumps(child, option=orjson.OPT_SORT_KEYS).decode())
    metadata = child["metadata"]
    labels = {**metadata.get("labels", {}), names.LABEL_APPLIED: digest}
    return child | {"metadata": metadata | {"labels": labels}}


def differs(wanted: Manifest, found: Manifest) -> bool:
    """Return whether a child has to be written: Trellis has not applied it yet, or a field differs."""
    return not is_applied_by_us(found) or not _contains(wanted, found)


def fingerprint(child: Mapping[str, Any]) -> str:
    """Return a digest of the content of a child, without the fields that change by themselves."""
    metadata = {key: value for key, value in child["metadata"].items() if key in {"uid", "labels", "ownerReferences"}}
    content = {key: value for key, value in child.items() if key not in {"metadata", "status"}}
    return names.short_hash(orjson.dumps([metadata, content], option=orjson.OPT_SORT_KEYS).decode())


def _contains(wanted: Any, found: Any) -> bool:  # noqa: ANN401 - it is JSON
    """Return whether ``found`` has all fields of ``wanted``; it may have further ones, such as defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_contains(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(found or ()) and all(map(_contains, wanted, found or ()))
    return bool(wanted == found) or (found is None and wanted in ("", False, 0))
