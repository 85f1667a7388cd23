"""Decides by canaries whether an installed shim runs: a pod on the same node tests it (ADR 21).

Pure. In: the Shims to test, their pods, the time. Out: pods to create or to replace, and the verdict. Called by
``decide``; ``canary_resources`` has the manifests.
Invariants: a shim counts only after a pod of its own succeeded; an interruption of a pod (eviction, a reboot) is not a
verdict on a shim; no wait exceeds the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trellis import names
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView

BUILT_IN_HANDLERS: Final = frozenset({"wamr", "wasi", "wasmedge", "wasmer", "wasmtime"})
"""Handlers of shims that run a WASI command as it is; other shims require their own kind of application."""
MODULE: Final = "/canary.wasm"
"""Path of the built-in canary in the installer image, which the node already has."""


@dataclass(frozen=True, slots=True)
class Canary:
    """The test of one Shim; ``command`` (): that of the image."""

    shim: str
    shim_uid: str
    handler: str
    image: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CanaryPod:
    """A pod that tests a Shim. ``interrupted``: it ended for a reason that is unrelated to the Shim.

    ``trouble``: why it does not run, or how it ended; "" if nothing is known.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    job_uid: str = ""
    node: str = ""
    shim: str = ""
    phase: str = "Pending"
    interrupted: bool = False
    trouble: str = ""
    deleting: bool = False

    @property
    def place(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Trial:
    """State of the test of a Job: pods to create, pods to re-create, Shims that failed, the reasons.

    ``passed``: all of them succeeded.
    """

    begin: tuple[Canary, ...] = ()
    again: tuple[CanaryPod, ...] = ()
    failed: tuple[str, ...] = ()
    message: str = ""
    passed: bool = False


def canary_of(shim: ShimView, built_in_image: str) -> Canary | None:
    """Return the canary of a Shim, None if it has none.

    By default handlers that run a WASI command are tested with the built-in module; ``verify.canaryImage`` tests any
    handler, ``verify.canary`` enables or disables the test.
    """
    wanted = shim.verification
    if shim.invalid or wanted.canary is False:
        return None
    if wanted.canary_image:
        return Canary(shim.name, shim.uid, shim.handler, wanted.canary_image)
    if wanted.canary or shim.handler in BUILT_IN_HANDLERS:
        return Canary(shim.name, shim.uid, shim.handler, built_in_image, (MODULE,))
    return None


def trial_of(
    job: JobView, canaries: Sequence[Canary], pods: Iterable[CanaryPod], *, overdue: bool, refused: str = ""
) -> Trial:
    """Return the state of the test of the Shims that a Job installed.

    ``overdue``: its deadline has passed; ``refused``: the error of the API server for the node.
    """
    by_shim = {pod.shim: pod for pod in pods if pod.job_uid == job.uid}
    begin: list[Canary] = []
    again: list[CanaryPod] = []
    failed: dict[str, str] = {}
    passed = True
    for canary in canaries:
        pod = by_shim.get(canary.shim)
        if pod is not None and pod.phase == "Succeeded":
            continue
        passed = False
        if pod is not None and pod.phase == "Failed" and not pod.interrupted:
            failed[canary.shim] = f"{pod.trouble or 'its pod failed'} (pod {pod.place})"
        elif overdue:
            failed[canary.shim] = _late(canary, pod, refused)
        elif pod is None:
            begin.append(canary)
        elif pod.phase == "Failed" and not pod.deleting:
            again.append(pod)
    message = "; ".join(f"Shim {shim} fails: {reason}" for shim, reason in sorted(failed.items()))
    return Trial(tuple(begin), tuple(again), tuple(sorted(failed)), message, passed)


def _late(canary: Canary, pod: CanaryPod | None, refused: str) -> str:
    if pod is None:
        return f"its pod could not be created: {refused}" if refused else "there was no time left for its pod"
    hint = "" if canary.command else f"; spec.verify.canaryImage must end by itself with status 0 ({canary.image})"
    return f"its pod {pod.place} did not end in time ({pod.trouble or 'it still runs'}){hint}"


def verifies_all(job: JobView, canaries: Iterable[Canary], changed: Iterable[str]) -> bool:
    """Return whether pods tested all Shims that a Job changed: then no verification depends on the kubelet alone."""
    return {canary.shim for canary in canaries} >= set(changed) and bool(job.canaries)


def class_of(canary: Canary) -> str:
    """Return the name of the RuntimeClass that a canary's pod has."""
    return names.canary_class(canary.shim_uid, canary.handler)
