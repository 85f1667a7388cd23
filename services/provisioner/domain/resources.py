"""Manifests that the provisioner writes: the installer Job and the rollout ledger.

Pure and total: arguments in, manifest out; each variant has a golden file. Called by ``apply``.
Invariants: names and label values fit Kubernetes' 63 characters for any node name; a manifest is a function of its
arguments alone, so a repeated create conflicts with the former one.
Source of the Job's shape: KWasm operator (peers keep their manifests and RBAC).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from provisioner.domain.installer_env import InstallerEnv, make_env, make_volumes, pull_secrets_of
from trellis import names
from trellis.installer_api.result import EXIT_FINAL
from trellis.installer_api.spec import InstallSpec
from trellis.provisioning.views import PROVISION, REMOVE, UNDO, JobView, NodeView, Target, encode_digests, spec_digest

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one Job: the target of its node, and how to reach it.

    ``spec`` None: the legacy installer image, which has no parameters. Otherwise the Trellis installer, which adds the
    shims of ``spec``, or with ``removes`` removes them. ``canaries``: Shims that a pod tests before the Job counts.
    ``undoes``: the Job that is rolled back, ``reason``, and the shims ``blamed``; ``target`` is then the state of the
    node's marks after it. ``first``: shims that are removed by force before those of ``spec`` are installed.
    ``unconfirmed``: shims that may be on the node before it starts though the node's marks do not name them.
    """

    target: Target
    handlers: tuple[str, ...] = ()
    removed_handlers: tuple[str, ...] = ()
    spec: InstallSpec | None = field(default=None, hash=False)
    removes: bool = False
    force: bool = False
    first: InstallSpec | None = field(default=None, hash=False)
    canaries: tuple[str, ...] = ()
    rolls_back: JobView | None = None
    blamed: str = ""
    reason: str = ""
    unconfirmed: frozenset[str] = frozenset()

    @property
    def operation(self) -> str:
        """The label of the Job, and a part of its name."""
        if self.rolls_back is not None:
            return UNDO
        return REMOVE if self.removes else PROVISION

    @property
    def shims(self) -> list[str]:
        """The names of the Shims that the Job installs or removes; none for the legacy installer image."""
        specs = (self.first, self.spec)
        return sorted({shim.name for spec in specs if spec is not None for shim in spec.shims})

    @property
    def fetched(self) -> tuple[str, ...] | None:
        """The pull secrets for downloads; None if nothing is downloaded, as for a removal."""
        return None if self.spec is None or self.removes else pull_secrets_of(self.spec)

    @property
    def digest(self) -> str:
        """The digest for which the outcome of the Job is recorded."""
        return self.target.digest if self.rolls_back is None else self.rolls_back.digest


@dataclass(frozen=True, slots=True)
class Installer:
    """Configuration of installers. ``deadline`` in seconds; ``retries`` are those of the Job, within one attempt.

    ``image``: the legacy installer; ``own_image``: the Trellis installer, which alone receives ``installer_env``.
    """

    image: str
    own_image: str
    pull_policy: str
    handler: str | None
    namespace: str
    deadline: int
    retries: int
    cpu: str
    memory: str
    service_account: str
    installer_env: InstallerEnv = field(default_factory=InstallerEnv)

    @property
    def digest(self) -> str | None:
        """Identity of an installation by the legacy image, as nodes record it; None without such an image."""
        return spec_digest({"image": self.image, "handler": self.handler}) if self.image else None


def make_installer_job(
    installer: Installer, node: NodeView, task: Task, attempt: int, traceparent: str | None
) -> Manifest:
    """Return the privileged Job that installs runtimes on one node, or removes them."""
    digest = task.digest
    labels = {
        names.LABEL_JOB: "true",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_NODE_UID: node.uid,
        names.LABEL_DIGEST: digest,
        names.LABEL_OPERATION: task.operation,
        names.LABEL_ATTEMPT: str(attempt),
        **{f"{names.LABEL_SHIM_PREFIX}{names.shim_label(shim)}": "true" for shim in task.shims},
    }
    annotations = {names.ANNOTATION_NODE: node.name}
    for annotation, listed in (
        (names.ANNOTATION_HANDLER, task.handlers),
        (names.ANNOTATION_REMOVED_HANDLERS, task.removed_handlers),
        (names.ANNOTATION_UNCONFIRMED, tuple(sorted(task.unconfirmed))),
        (names.ANNOTATION_CANARIES, task.canaries),
    ):
        if listed:
            annotations[annotation] = ",".join(listed)
    if task.spec is not None:
        annotations[names.ANNOTATION_SHIMS] = encode_digests(dict(task.target.shims))
    if task.rolls_back is not None:
        annotations[names.ANNOTATION_ROLLS_BACK] = task.reason
        if task.blamed:
            annotations[names.ANNOTATION_BLAMED] = task.blamed
    if traceparent:
        annotations[names.ANNOTATION_TRACEPARENT] = traceparent
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.installer_job_name(node.name, node.uid, digest, task.operation, attempt),
            "namespace": installer.namespace,
            "labels": labels,
            "annotations": annotations,
            # The garbage collector deletes the Job with its Node, independent of the leader.
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}],
        },
        "spec": {
            "backoffLimit": installer.retries,
            **_failure_policy(task),
            "activeDeadlineSeconds": installer.deadline,
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod_spec(installer, node, task, traceparent),
            },
        },
    }


def _failure_policy(task: Task) -> Manifest:
    """Return the policy that ends retries at once: the Trellis installer exits with 2 if a retry cannot succeed.

    Without it each pod of the Job would restart a container runtime that does not start with the shim.
    """
    if task.spec is None:
        return {}
    codes = {"containerName": names.JOB_CONTAINER, "operator": "In", "values": [EXIT_FINAL]}
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}}


def _pod_spec(installer: Installer, node: NodeView, task: Task, traceparent: str | None) -> Manifest:
    volumes: list[tuple[Manifest, str]] = [
        ({"name": "node-root", "hostPath": {"path": "/", "type": "Directory"}}, names.NODE_ROOT)
    ]
    if task.spec is not None:
        volumes += make_volumes(installer.installer_env, task.fetched)
    image_pull_secrets = [{"name": name} for name in installer.installer_env.image_pull_secrets]
    resources = {"cpu": installer.cpu, "memory": installer.memory}
    container = {
        "name": names.JOB_CONTAINER,
        "image": installer.image if task.spec is None else installer.own_image,
        **_command(task),
        "imagePullPolicy": installer.pull_policy,
        "env": _env(installer, task, traceparent),
        "securityContext": {"privileged": True},
        "resources": {"requests": resources, "limits": {"memory": installer.memory}},
        # So that an installer that writes no termination message still leaves its last log lines.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_mount(volume["name"], path) for volume, path in volumes],
    }
    return {
        "nodeName": node.name,
        "hostPID": True,
        "restartPolicy": "Never",
        # The kubelet ends the pod even if its Job is deleted; otherwise the deadline of the Job is first.
        "activeDeadlineSeconds": installer.deadline,
        "serviceAccountName": installer.service_account,
        **({"imagePullSecrets": image_pull_secrets} if image_pull_secrets else {}),
        "automountServiceAccountToken": False,
        # nodeName passes by the scheduler, but a NoExecute taint would still evict the installer half-way.
        "tolerations": [{"operator": "Exists"}],
        "volumes": [volume for volume, _ in volumes],
        **({"initContainers": [_removal_first(container, task.first)]} if task.first else {}),
        "containers": [container],
    }


def _removal_first(container: Manifest, removals: InstallSpec) -> Manifest:
    """Return the init container that removes added shims before the installer restores the former ones.

    One pod runs both: the installer supports one operation per run, and the Job has one outcome.
    """
    env = [
        item if item["name"] != names.INSTALLER_SPEC else item | {"value": removals.to_json()}
        for item in container["env"]
    ]
    return container | {"name": names.JOB_REMOVAL_CONTAINER, "args": ["uninstall", "--force"], "env": env}


def _env(installer: Installer, task: Task, traceparent: str | None) -> list[Manifest]:
    env: list[Manifest] = [{"name": "NODE_ROOT", "value": names.NODE_ROOT}]
    if task.spec is not None:
        env.append({"name": names.INSTALLER_SPEC, "value": task.spec.to_json()})
        env += make_env(installer.installer_env, task.fetched)
    if traceparent:
        env.append({"name": "TRACEPARENT", "value": traceparent})
    return env


def _mount(volume: str, path: str) -> Manifest:
    mount: Manifest = {"name": volume, "mountPath": path}
    return mount if path == names.NODE_ROOT else mount | {"readOnly": True}


def _command(task: Task) -> Manifest:
    """Return the arguments of the Trellis installer; a legacy image has none."""
    if task.spec is None:
        return {}
    if not task.removes:
        return {"args": ["install"]}
    return {"args": ["uninstall", "--force"] if task.force else ["uninstall"]}
