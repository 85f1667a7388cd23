"""The watched kinds of Wasm pods, with views of bounded size.

In: nothing. Out: parts for watches. Called by ``live_model``. Invariants: pods without a RuntimeClass, and Events that
no health depends on, are dropped at once, because no selector of the API server can; no view has labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    RUNTIME_CLASSES,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
    STATEFUL_SETS,
)
from trellis.read_model.live.watching import Part
from trellis.read_model.wasm_pods.owners import OwnerView, view_executor, view_owner, view_runtime_class
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE
from trellis.read_model.wasm_pods.pods import WasmPod, view_pod
from trellis.read_model.wasm_pods.workloads import view_cause
from trellis.v2.fields import mapping, text

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def wasm_parts() -> tuple[Part, ...]:
    """Return the parts, by the names in ``composing_wasm``."""
    return (
        Part("wasmpods", PODS, view_wasm_pod, shape=POD_SHAPE),
        Part("deployments", DEPLOYMENTS, _owner("Deployment")),
        Part("statefulsets", STATEFUL_SETS, _owner("StatefulSet")),
        Part("daemonsets", DAEMON_SETS, _owner("DaemonSet")),
        Part("wasmjobs", JOBS, _owner("Job")),
        Part("cronjobs", CRON_JOBS, _owner("CronJob")),
        Part("spinapps", SPIN_APPS, _owner("SpinApp"), optional=True),
        Part("spinappexecutors", SPIN_APP_EXECUTORS, view_executor, optional=True),
        Part("runtimeclasses", RUNTIME_CLASSES, view_runtime_class),
        Part("podevents", EVENTS, view_cause, fields="type=Warning"),
    )


def view_wasm_pod(manifest: Mapping[str, Any]) -> WasmPod | None:
    """Return the view of a pod, None if it has no RuntimeClass."""
    if not text(mapping(manifest, "spec"), "runtimeClassName"):
        return None
    pod = view_pod(manifest)
    return replace(pod, meta=replace(pod.meta, labels=_NO_LABELS))


def _owner(kind: str) -> Callable[[Mapping[str, Any]], OwnerView]:
    def view(manifest: Mapping[str, Any]) -> OwnerView:
        owner = view_owner(kind, manifest)
        meta = replace(owner.meta, labels=_NO_LABELS)
        return replace(owner, meta=meta, template=replace(owner.template, meta=meta), selector="")

    return view
