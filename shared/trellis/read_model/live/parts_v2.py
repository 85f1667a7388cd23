"""The watched kinds of wasmCloud v2, with views of bounded size.

In: nothing. Out: parts for watches. Called by ``watching_v2``. Invariant: equal specs of the Workloads of one owner are
one value in memory, also for several viewers: 10,000 Workloads differ in their names and conditions only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from trellis.kube.resources import (
    ARTIFACTS,
    ENDPOINT_SLICES,
    PODS,
    SERVICES,
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
)
from trellis.read_model.live.watching import Part
from trellis.v2.deployments import view_artifact, view_deployment, view_replica_set
from trellis.v2.hosts import view_host
from trellis.v2.pods import POD_SELECTOR, view_host_pod
from trellis.v2.routes import SLICE_SELECTOR, RoutedService, view_service, view_slice
from trellis.v2.workloads import TemplateView, WorkloadView, view_workload

OWNERS_MOST: Final = 10_000
"""Owners whose specs are shared; the oldest is dropped."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def v2_parts() -> tuple[Part, ...]:
    """Return the parts, by the names in ``composing_v2``.

    Hosts and their pods are watched in all namespaces: they are in those of the operator, and run the workloads of all.
    """
    return (
        Part("whosts", WASM_HOSTS, view_host, everywhere=True),
        Part("workloads", WORKLOADS, SharedSpecs().view),
        Part("workloadreplicasets", WORKLOAD_REPLICA_SETS, view_replica_set),
        Part("workloaddeployments", WORKLOAD_DEPLOYMENTS, view_deployment),
        Part("artifacts", ARTIFACTS, view_artifact),
        Part("wservices", SERVICES, _view_service),
        Part("wslices", ENDPOINT_SLICES, view_slice, SLICE_SELECTOR),
        Part("wpods", PODS, view_host_pod, POD_SELECTOR, everywhere=True),
    )


class SharedSpecs:
    """Views of Workloads that share the specs of their owners."""

    def __init__(self) -> None:
        self._specs: OrderedDict[str, TemplateView] = OrderedDict()

    def view(self, manifest: Mapping[str, Any]) -> WorkloadView:
        """Return the view of a Workload, without its labels, which nothing uses."""
        view = view_workload(manifest)
        spec = self._specs.get(view.meta.owner)
        if spec != view.spec:
            spec = view.spec
            self._specs[view.meta.owner] = spec
            if len(self._specs) > OWNERS_MOST:
                self._specs.popitem(last=False)
        return replace(view, spec=spec, meta=replace(view.meta, labels=_NO_LABELS))


def _view_service(manifest: Mapping[str, Any]) -> RoutedService:
    """Return the view of a Service without its labels: most Services are of other projects."""
    view = view_service(manifest)
    return replace(view, meta=replace(view.meta, labels=_NO_LABELS))
