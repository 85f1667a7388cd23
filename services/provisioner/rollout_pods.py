"""Reads the pods of Shims for plans, only while a rollout depends on them.

In: the RuntimeClasses whose pods matter. Out: ``Workloads``. Called by ``planner``. Invariants: pods that cannot be
read are reported as unknown, with the reason, and never as missing; in an interval there is at most one list; of other
pods at most two pages are in memory.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

from provisioner.domain.pod_readiness import RolloutPod, Workloads
from provisioner.domain.rollout_pods import view_rollout_pod
from provisioner.timings import RolloutPodTimings
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.reader import Selection
from trellis.kube.resources import PODS
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE


@dataclass(eq=False)
class RolloutPods:
    """Reader of pods. The API server cannot select pods by their RuntimeClass, so it lists all of them."""

    kube: Kube
    timings: RolloutPodTimings
    _classes: frozenset[str] = frozenset()
    _read_at: float = 0.0  # monotonic
    _last: Workloads = field(default_factory=Workloads)

    async def read(self, classes: frozenset[str]) -> Workloads:
        """Return the pods of these RuntimeClasses, of the last list if it is recent enough."""
        if not classes:
            return Workloads(settle=self.timings.settle, look=self.timings.look)
        now = time.monotonic()
        if classes <= self._classes and now - self._read_at < self.timings.fresh:
            return self._last
        self._last = await self._list(classes)
        self._classes, self._read_at = classes, now
        return self._last

    async def _list(self, classes: frozenset[str]) -> Workloads:
        found: dict[str, list[RolloutPod]] = defaultdict(list)
        try:
            async for page in self.kube.pages(Selection(PODS, shape=POD_SHAPE)):
                if page.first:
                    found.clear()  # an expired list starts again
                for manifest in page.items:
                    if (name := (manifest.get("spec") or {}).get("runtimeClassName")) in classes:
                        found[name].append(view_rollout_pod(manifest))
        except KubeError as error:
            return Workloads(None, str(error), self.timings.settle, self.timings.look)
        return Workloads(found, "", self.timings.settle, self.timings.look)
