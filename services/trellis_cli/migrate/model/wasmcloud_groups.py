"""Plans the migration of the host groups of wasmcloud-operator, and of their children.

Pure: a group, its children and the objects it refers to in, steps out. Called by ``migrate.wasmcloud``. Running groups
are not changed: host_manager takes them over itself (docs/compat-wasmcloud-operator.md), and the steps list its
changes. A group that is being deleted loses the finalizer of the operator, because no controller removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from host_manager.domain.children import WORKLOADS, ChildKey, differs
from host_manager.domain.group import ADOPTED, Group, HostGroupSpec, Inputs
from host_manager.domain.inputs import read_inputs
from host_manager.domain.merging import TemplateError
from host_manager.domain.resources import make_workload
from host_manager.domain.template import managed_by
from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.kube.resources import HOST_CONFIGS
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, FormerGroup, Manifest, place_of, without_finalizer

_LEAKED: Final = frozenset({"WASMCLOUD_OCI_REGISTRY_USER", "WASMCLOUD_OCI_REGISTRY_PASSWORD"})
"""Environment variables of the host that the operator fills with values of a Secret."""

_RUNS: Final = "runs the hosts"
_OURS: Final = {"manager": names.FIELD_MANAGER_HOST_MANAGER, "operation": "Apply"}
"""managedFields of a child after its takeover: then only differences in these fields count."""


def view_former_group(manifest: Mapping[str, Any]) -> Group | str:
    """Return the group, or the errors of its spec."""
    metadata = manifest["metadata"]
    try:
        spec = WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        return ", ".join(".".join(("spec", *map(str, item["loc"]))) + f": {item['msg']}" for item in error.errors()[:3])
    return Group(metadata["name"], metadata["namespace"], metadata["uid"], spec)


def keys_of(group: Group) -> list[ChildKey]:
    """Return the children that the operator creates for a group."""
    workload = "DaemonSet" if group.runs_as_daemonset(ADOPTED) else "Deployment"
    kinds = ("ConfigMap", "ServiceAccount", "Role", "RoleBinding", workload, "Service")
    return [(kind, group.name) for kind in kinds]


def plan_groups(former: Former) -> list[Step]:
    """Return the step for each group of the operator, and for children with changes."""
    found = sorted(former.groups, key=lambda item: place_of(item.manifest))
    return [step for item in found for step in _group(item)]


def _group(former: FormerGroup) -> Iterable[Step]:
    metadata = former.manifest["metadata"]
    finalizers = metadata.get("finalizers") or ()
    if names.WASMCLOUD_OPERATOR not in finalizers and names.FINALIZER_HOSTS in finalizers:
        return  # already managed by host_manager
    place, group = place_of(former.manifest), view_former_group(former.manifest)
    if metadata.get("deletionTimestamp"):
        if names.WASMCLOUD_OPERATOR in finalizers:
            reason = (
                f"being deleted, and no controller removes the finalizer {names.WASMCLOUD_OPERATOR}; its "
                "hosts end with it"
            )
            write = without_finalizer(HOST_CONFIGS, former.manifest, names.WASMCLOUD_OPERATOR)
            yield Step(place, _what(group), Doing.FINALIZER_REMOVED, reason, write)
        return
    if isinstance(group, str):
        yield Step(place, _what(group), Doing.LEAVE, f"invalid spec: {group}; its hosts keep running unchanged")
        return
    inputs, problems = read_inputs(group, former.sources, "")
    blocking = [problem.message for problem in problems if problem.blocks]
    try:
        children = list(_children(former, group, inputs))
    except TemplateError as error:
        children, blocking = [], [*blocking, str(error)]
    if any(step.doing is Doing.LEAVE for step in children):
        blocking.append("one of its children is owned by another controller")
    if blocking:
        reason = f"host_manager does not take it over, its hosts keep running unchanged: {'; '.join(blocking)}"
        yield Step(place, _what(group), Doing.LEAVE, reason)
    else:
        yield Step(place, _what(group), Doing.KEEP, _adoption(group, children))
    yield from children


def _adoption(group: Group, children: Iterable[Step]) -> str:
    """Return the changes that host_manager makes to a group and its children; ``children``: steps with changes."""
    special = {step.object for step in children}
    rolled = any(step.what.startswith(_RUNS) for step in children)
    plain = [kind for kind, _ in keys_of(group) if _at(group, kind) not in special]
    return (
        f"host_manager takes it over, with {names.FINALIZER_HOSTS} as finalizer: "
        + ("its hosts are rolled once" if rolled else "its hosts keep running")
        + (f"; taken over unchanged: {', '.join(plain)}" if plain else "")
    )


def _what(group: Group | str) -> str:
    if isinstance(group, str):
        return "host group"
    hosts = "one on each node" if group.runs_as_daemonset(ADOPTED) else group.spec.host_replicas
    return f"host group on lattice {group.spec.lattice}, hosts: {hosts}"


def _at(group: Group, kind: str) -> str:
    return f"{kind} {group.namespace}/{group.name}"


def _children(former: FormerGroup, group: Group, inputs: Inputs) -> Iterable[Step]:
    """Yield a step for each child that needs more than a takeover.

    Raises:
        TemplateError: the additions of the user to the pod template are invalid.
    """
    of = f"of group {group.name}"
    for kind, name in keys_of(group):
        found = former.children.get((kind, name))
        if found is None:
            yield Step(_at(group, kind), f"missing, {of}", Doing.KEEP, "host_manager creates it")
        elif owner := _other_owner(found, group):
            reason = f"it belongs to {owner}: host_manager ignores the group until one of them is renamed"
            yield Step(_at(group, kind), f"name conflict with a child {of}", Doing.LEAVE, reason)
        elif kind in WORKLOADS and (reason := _roll(found, group, inputs)):
            yield Step(_at(group, kind), f"{_RUNS} {of}", Doing.KEEP, reason)


def _roll(workload: Manifest, group: Group, inputs: Inputs) -> str:
    """Return why host_manager changes the pod template, "" if it does not."""
    if leaked := _leaked(workload):
        return (
            f"shows {', '.join(leaked)} as plain values: host_manager replaces them by references to Secret "
            f"{names.registry_secret(group.name)}, which rolls the hosts once"
        )
    desired = HostGroupSpec(group, inputs, ADOPTED, managed_by(workload))
    wanted = {"spec": {"template": make_workload(desired)["spec"]["template"]}}
    as_ours = {**workload, "metadata": {"managedFields": [_OURS]}}
    if differs(wanted, as_ours):
        return "differs from the spec of the group: host_manager updates it, which rolls the hosts once"
    return ""


def _other_owner(found: Manifest, group: Group) -> str:
    """Return the other object that controls a child, "" if there is none."""
    for owner in found["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("uid") != group.uid:
            return f"{owner.get('kind')} {owner.get('name')}"
    return ""


def _leaked(workload: Mapping[str, Any]) -> list[str]:
    """Return the environment variables with plain registry credentials; never their values."""
    pod = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    env = [item for container in pod.get("containers") or () for item in container.get("env") or ()]
    return sorted({item["name"] for item in env if item["name"] in _LEAKED and "value" in item})
