"""Views of RuntimeClasses and of the owners of Wasm pods: workloads of Kubernetes, SpinApps and their executors.

Pure. In: manifests of any content. Out: views. Called by the reader of pages. Invariant: nothing raises. Source:
``core.spinkube.dev/v1alpha1`` of spin-operator (api/v1alpha1/spinapp_types.go, spinappexecutor_types.go): an executor
is in the namespace of its SpinApp, and the Deployment has the name of the SpinApp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trellis import names
from trellis.read_model.wasm_pods.pods import Pairs, Toleration, WasmPod, view_template, view_tolerations
from trellis.v2.fields import Json, items, mapping, message, number, seconds, text, texts
from trellis.v2.objects import FALSE, TRUE, Condition, Meta, condition, view_conditions, view_meta

KEEPS_PLACE: Final = frozenset({"StatefulSet", "DaemonSet"})
"""Kinds whose controllers create no successor of a pod before its deletion has ended: a name, or a node, has one."""
_DEFAULT_REPLICAS: Final = 1
_FAILURES: Final = ("Failed", "FailureTarget")
"""Conditions of a Job that has failed, and of one whose pods are ended for that (KEP-3329)."""
_OPERATORS: Final = {"In": "in", "NotIn": "notin"}


@dataclass(frozen=True, slots=True)
class RuntimeClassView:
    """A RuntimeClass. ``selector``, ``tolerations``: those that it adds to its pods.

    ``canary``: provisioner created it for the pods that verify a Shim on a node.
    """

    name: str
    handler: str = ""
    selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    canary: bool = False


@dataclass(frozen=True, slots=True)
class OwnerView:
    """An owner of pods. ``kind``: as in its manifest; ``template``: of its pods, of a SpinApp without a runtime class.

    ``wanted``: number of pods that it should have, None if another object decides. ``refused``: why its pods cannot be
    created, as its conditions report it. ``complete``: a Job that has succeeded; ``failed``: why a Job has failed;
    ``succeeded``: Unix seconds, when the last Job of a CronJob has, 0.0 if none has.
    ``selector``: of its pods, for a list. ``executor``: of a SpinApp. ``paused``, ``stalled``: of the rollout of a
    Deployment, the latter with its message; ``outdated``: some of its pods have a former template. ``revision``: of the
    current template of a StatefulSet.
    """

    kind: str
    meta: Meta
    template: WasmPod
    wanted: int | None = None
    refused: str = ""
    suspended: bool = False
    complete: bool = False
    failed: str = ""
    succeeded: float = 0.0
    selector: str = ""
    executor: str = ""
    paused: bool = False
    stalled: str = ""
    outdated: bool = False
    revision: str = ""

    def has_succeeded_since(self, job: OwnerView) -> bool:
        """Return whether a later run than a Job of this CronJob has completed: its own Job can be deleted since."""
        return not job.complete and self.succeeded > (job.meta.created or 0.0)


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """A SpinAppExecutor. ``runtime_class``: "" if its pods run Spin in an ordinary container."""

    name: str
    creates_deployment: bool = False
    runtime_class: str = ""
    namespace: str = ""


def view_runtime_class(manifest: object) -> RuntimeClassView:
    """Return the view of a RuntimeClass."""
    metadata, scheduling = mapping(manifest, "metadata"), mapping(mapping(manifest), "scheduling")
    return RuntimeClassView(
        name=text(metadata, "name"),
        handler=text(mapping(manifest), "handler"),
        selector=tuple(sorted(texts(scheduling, "nodeSelector").items())),
        tolerations=view_tolerations(scheduling),
        canary=text(mapping(metadata, "labels"), names.LABEL_CANARY) == "true",
    )


def view_executor(manifest: object) -> ExecutorView:
    """Return the view of a SpinAppExecutor."""
    spec = mapping(manifest, "spec")
    return ExecutorView(
        name=text(mapping(manifest, "metadata"), "name"),
        namespace=text(mapping(manifest, "metadata"), "namespace"),
        creates_deployment=spec.get("createDeployment") is True,
        runtime_class=text(mapping(spec, "deploymentConfig"), "runtimeClassName"),
    )


def view_owner(kind: str, manifest: object) -> OwnerView:
    """Return the view of an owner; ``kind``: Deployment, StatefulSet, DaemonSet, Job, CronJob or SpinApp."""
    meta, spec, status = view_meta(manifest), mapping(manifest, "spec"), mapping(manifest, "status")
    conditions = view_conditions(status)
    job = mapping(mapping(spec, "jobTemplate"), "spec") if kind == "CronJob" else spec
    failure, wanted = condition(conditions, "ReplicaFailure"), _wanted(kind, spec, status)
    progress = condition(conditions, "Progressing") if kind == "Deployment" else Condition("Progressing")
    return OwnerView(
        kind=kind,
        meta=meta,
        template=view_template(meta, mapping(job, "template")),
        wanted=wanted,
        refused=failure.message if failure.true else "",
        suspended=spec.get("suspend") is True,
        complete=condition(conditions, "Complete").true,
        failed=_failed(status) if kind == "Job" else "",
        succeeded=seconds(text(status, "lastSuccessfulTime")) or 0.0,
        selector=label_selector(mapping(spec, "selector")),
        executor=text(spec, "executor"),
        paused=spec.get("paused") is True,
        stalled=progress.message or "no progress" if progress.status == FALSE else "",
        outdated=kind == "Deployment" and _outdated(meta, status, wanted or 0),
        revision=text(status, "updateRevision"),
    )


def _failed(status: Json) -> str:
    """Return why a Job has failed, or is about to: the reason and the message of its condition."""
    true = [item for item in items(status, "conditions") if text(item, "status") == TRUE]
    found = next((item for kind in _FAILURES for item in true if text(item, "type") == kind), {})
    return ": ".join(filter(None, (text(found, "reason"), message(found)))) or ("no reason" if found else "")


def _outdated(meta: Meta, status: Json, wanted: int) -> bool:
    """Return whether pods of the current template are missing, by a status of the current generation."""
    observed = number(status, "observedGeneration")
    return observed is not None and observed >= meta.generation and (number(status, "updatedReplicas") or 0) < wanted


def label_selector(selector: Json) -> str:
    """Return a LabelSelector as the query of a list, "" if it selects nothing that a query can express."""
    terms = [f"{name}={value}" for name, value in sorted(texts(selector, "matchLabels").items())]
    for item in items(selector, "matchExpressions"):
        key, operator = text(item, "key"), text(item, "operator")
        values = item.get("values")
        if operator in _OPERATORS and isinstance(values, list):
            terms.append(f"{key} {_OPERATORS[operator]} ({','.join(str(value) for value in values)})")
        elif operator == "Exists":
            terms.append(key)
        elif operator == "DoesNotExist":
            terms.append(f"!{key}")
    return ",".join(terms)


def _wanted(kind: str, spec: Json, status: Json) -> int | None:
    match kind:
        case "DaemonSet":
            return number(status, "desiredNumberScheduled") or 0
        case "Job":
            return 0 if number(spec, "parallelism") == 0 else None
        case "CronJob":
            return None
        case "SpinApp":
            # Go omits 0; a SpinApp has no default of 1, as a Deployment has.
            return None if spec.get("enableAutoscaling") is True else number(spec, "replicas") or 0
        case _:
            found = number(spec, "replicas")
            return _DEFAULT_REPLICAS if found is None else found
