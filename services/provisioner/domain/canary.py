"""Whether a shim that a Job installed runs: a pod on that very node tries it (ADR 21).

Pure. In: which Shims are to be tried, the pods that try them, the time. Out: which pods to make or to replace, and the
verdict. Called by ``decide``; ``canary_resources`` has the manifests.
Invariants: a shim counts only after a pod of its own succeeded; what happens to a pod as such (eviction, a reboot) is
no verdict on a shim; nothing is waited for longer than the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trellis import names
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView

BUILT_IN_HANDLERS: Final = frozenset({"wamr", "wasmedge", "wasmer", "wasmi", "wasmtime"})
"""Handlers of shims that run a WASI command as it is; others want their own kind of application."""
MODULE: Final = "/canary.wasm"
"""The built-in canary's place in the installer's image, which the node has already."""


@dataclass(frozen=True, slots=True)
class Canary:
    """What tries one Shim; ``command`` () is the image's own."""

    shim: str
    shim_uid: str
    handler: str
    image: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CanaryPod:
    """A pod that tries a Shim. ``interrupted``: it ended for a reason that says nothing of the Shim.

    ``trouble``: what keeps it from running, or how it ended, in words; "" if nothing is known.
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
    """How the trial of a Job stands: pods to make, pods to re-creates, whose Shims failed and why.

    All passed or not.
    """

    begin: tuple[Canary, ...] = ()
    again: tuple[CanaryPod, ...] = ()
    failed: tuple[str, ...] = ()
    message: str = ""
    passed: bool = False


def canary_of(shim: ShimView, built_in_image: str) -> Canary | None:
    """Return what tries a Shim; None if nothing does.

    By default handlers that run a WASI command are tried with the built-in module; ``verify.canaryImage`` tries any,
    ``verify.canary`` says yes or no to it.
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
    """Return how the trial of what a Job installed stands.

    ``overdue``: its deadline has passed; ``refused``: what the API server refuses on the node, in its words.
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
            failed[canary.shim] = f"its pod {pod.place} failed: {pod.trouble or 'it did not say why'}"
        elif overdue:
            failed[canary.shim] = _late(canary, pod, refused)
        elif pod is None:
            begin.append(canary)
        elif pod.phase == "Failed" and not pod.deleting:
            again.append(pod)
    message = "; ".join(f"Shim {shim} does not run Wasm on this node: {why}" for shim, why in sorted(failed.items()))
    return Trial(tuple(begin), tuple(again), tuple(sorted(failed)), message, passed)


def _late(canary: Canary, pod: CanaryPod | None, refused: str) -> str:
    if pod is None:
        return f"its pod could not be created: {refused}" if refused else "there was no time left for its pod"
    hint = "" if canary.command else f"; spec.verify.canaryImage must end by itself with status 0 ({canary.image})"
    return f"its pod {pod.place} did not end in time ({pod.trouble or 'it still runs'}){hint}"


def proves_all(job: JobView, canaries: Iterable[Canary], changed: Iterable[str]) -> bool:
    """Return whether pods tried everything that a Job changed: then nothing rests on what the kubelet lists alone."""
    return {canary.shim for canary in canaries} >= set(changed) and bool(job.canaries)


def class_of(canary: Canary) -> str:
    """Return the name of the RuntimeClass that a canary's pod has."""
    return names.canary_class(canary.shim_uid, canary.handler)
