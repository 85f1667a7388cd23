"""The pod template of a host group: a wasmCloud host, and its NATS leaf node.

Pure: a specification in, a pod template out. Called by ``resources``. Revision 1 equals the template of
wasmcloud-operator 0.5.1, except for credentials, which it has in plain text; ``improvements`` adds revision 2. Versions
0.3.2 to 0.5.0 write another name into a label of the pods, which is kept, as a change would roll them.
Invariants: a template of revision 1 never changes, at any age of the group; additions are merged as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from host_manager.domain.environment import make_args, make_env, make_registry_env
from host_manager.domain.group import ADOPTED, Group, HostGroupSpec, Manifest
from host_manager.domain.improvements import improved
from host_manager.domain.merging import TemplateError, merge, without_nulls
from trellis import names
from trellis.lattice.connection import groups
from trellis.provisioning.other_controllers import NAMES, Peer

LEAF: Final = "nats-leaf"
HOST: Final = "wasmcloud-host"
CONFIG_KEY: Final = "nats.conf"
CREDENTIALS_KEY: Final = groups.CREDENTIALS_KEY
LEAF_PORT: Final = 4222
MISPLACED: Final = "spec"
"""Field of podTemplateAdditions in wasmcloud-operator's own example: the API server prunes it, so it has no effect."""
_HOST_IMAGE: Final = "ghcr.io/wasmcloud/wasmcloud"
_LEAF_IMAGE: Final = "nats:2.10-alpine"
_CERTIFICATES: Final = "/wasmcloud/certificates"
_LEAF_DIRECTORY: Final = "/nats"


def selector_of(group: Group) -> dict[str, str]:
    """Return the labels that select the pods of a host group."""
    return {"app.kubernetes.io/name": "wasmcloud", "app.kubernetes.io/instance": group.name}


def common_labels() -> dict[str, str]:
    """Return the labels of pods and workloads; the values are today's selector."""
    return {"app.kubernetes.io/name": "wasmcloud", names.LABEL_MANAGED_BY: names.WADM_OPERATOR}


def pod_labels(group: Group) -> dict[str, str]:
    """Return the labels of pods, including those of the hosts."""
    hosts = {f"{names.HOST_LABEL_PREFIX}{name}": value for name, value in (group.spec.host_labels or {}).items()}
    return selector_of(group) | common_labels() | hosts


def managed_by(workload: Mapping[str, Any] | None) -> str:
    """Return the label value with which wasmcloud-operator created the pods of a workload; default: today's."""
    template = ((workload or {}).get("spec") or {}).get("template") or {}
    found = ((template.get("metadata") or {}).get("labels") or {}).get(names.LABEL_MANAGED_BY)
    return found if found in NAMES[Peer.WASMCLOUD_OPERATOR] else names.WADM_OPERATOR


def make_pod_template(desired: HostGroupSpec) -> Manifest:
    """Return the pod template of a revision.

    Raises:
        TemplateError: an addition of the user has an invalid type.
    """
    group = desired.group
    certificates, mounts, arguments = _certificates(desired)
    containers = _with_additions(group, _leaf(desired), _host(desired, mounts, arguments))
    # The registry's credentials are not part of the merge in wasmcloud-operator: they are appended to its result.
    containers[1]["env"] = [*containers[1]["env"], *make_registry_env(desired, names.registry_secret(group.name))]
    volumes = [
        {"name": "nats-config", "configMap": {"name": group.name}},
        *certificates,
        *_credentials_volume(desired),
    ]
    pod = _pod(group, [_tidied(container) for container in containers], volumes)
    if desired.revision == ADOPTED:
        return {"metadata": {"labels": pod_labels(group) | {names.LABEL_MANAGED_BY: desired.managed_by}}, "spec": pod}
    return improved({"metadata": {"labels": pod_labels(group)}, "spec": pod}, desired)


def _leaf(desired: HostGroupSpec) -> Manifest:
    spec = desired.group.spec
    mounts = [_mount("nats-config", f"{_LEAF_DIRECTORY}/{CONFIG_KEY}", CONFIG_KEY)]
    # Without the key the mount would be a directory; revision 1 has it nevertheless.
    if spec.secret_name is not None and (desired.inputs.credentials or desired.revision == ADOPTED):
        mounts.append(_mount("nats-creds", f"{_LEAF_DIRECTORY}/{CREDENTIALS_KEY}", CREDENTIALS_KEY))
    return {
        "name": LEAF,
        "image": _LEAF_IMAGE if spec.nats_leaf_image is None else spec.nats_leaf_image,
        "args": ["-js", "--config", f"{_LEAF_DIRECTORY}/{CONFIG_KEY}"],
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": LEAF_PORT}],
        # Period in which the host can still publish its shutdown through the leaf.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "10"]}}},
        "volumeMounts": mounts,
    } | _resources(desired, "nats")


def _host(desired: HostGroupSpec, mounts: list[Manifest], arguments: list[str]) -> Manifest:
    spec = desired.group.spec
    return {
        "name": HOST,
        "image": f"{_HOST_IMAGE}:{spec.version}" if spec.image is None else spec.image,
        "command": ["wasmcloud"],
        "args": [*make_args(spec), *arguments],
        "env": make_env(desired),
        "volumeMounts": mounts,
    } | _resources(desired, "wasmcloud")


def _resources(desired: HostGroupSpec, container: str) -> Manifest:
    options = desired.group.spec.scheduling_options
    resources = options.resources if options else None
    found = getattr(resources, container) if resources else None
    if found is None:
        return {}
    return {"resources": found.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)}


def _credentials_volume(desired: HostGroupSpec) -> list[Manifest]:
    name = desired.group.spec.secret_name
    return [] if name is None else [{"name": "nats-creds", "secret": {"secretName": name}}]


def _certificates(desired: HostGroupSpec) -> tuple[list[Manifest], list[Manifest], list[str]]:
    """Return volumes, mounts and arguments for the authorities with certificates."""
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    arguments: list[str] = []
    certificates = desired.group.spec.certificates
    authorities = (certificates.authorities if certificates else None) or []
    for authority, (of_secret, of_config_map) in zip(authorities, desired.inputs.authorities, strict=True):
        name = f"ca-{authority.name}"
        secret, config_map = authority.secret.secret_name, authority.config_map.name
        if secret and not of_secret:
            continue
        if secret:
            volumes.append({"name": name, "secret": {"secretName": secret}})
        if config_map and not of_config_map:
            continue  # wasmcloud-operator keeps the unused volume of the Secret
        if config_map:
            volumes.append({"name": name, "configMap": {"name": config_map}})
        path = f"{_CERTIFICATES}/{name}"
        mounts.append({"name": name, "readOnly": True, "mountPath": path})
        for key in of_config_map if config_map else of_secret:
            arguments += ["--tls-ca-path", f"{path}/{key}"]
    return volumes, mounts, arguments


def _with_additions(group: Group, leaf: Manifest, host: Manifest) -> list[Manifest]:
    """Merge the user's additions into the containers."""
    options = group.spec.scheduling_options
    additions = options.container_template_additions if options else None
    if additions is None:
        return [leaf, host]
    place = "spec.schedulingOptions.containerTemplateAdditions"
    nats, wasmcloud = without_nulls(additions.nats), without_nulls(additions.wasmcloud)
    return [merge(nats, leaf, f"{place}.nats"), merge(wasmcloud, host, f"{place}.wasmcloud")]


def _pod(group: Group, containers: list[Manifest], volumes: list[Manifest]) -> Manifest:
    """Return the pod: the user's fields, except for containers and account; volumes of both, those of Trellis first."""
    options = group.spec.scheduling_options
    additions: Any = without_nulls(options.pod_template_additions) if options else {}
    additions.pop(MISPLACED, None)
    added = additions.get("volumes", [])
    if not isinstance(added, list):
        raise TemplateError("spec.schedulingOptions.podTemplateAdditions.volumes has to be a list")
    account = {"serviceAccountName": group.name, "serviceAccount": group.name}
    return {**additions, **account} | {"containers": containers, "volumes": [*volumes, *added]}


def _tidied(container: Manifest) -> Manifest:
    """Drop empty lists: they matter only in the merge."""
    return {key: value for key, value in container.items() if value != []}


def _mount(volume: str, path: str, sub_path: str) -> Manifest:
    return {"name": volume, "mountPath": path, "subPath": sub_path, "readOnly": True}
