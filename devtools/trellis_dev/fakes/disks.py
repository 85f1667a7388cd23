"""The shims on the disks of simulated nodes: the effect of installer Jobs that run nowhere.

In: the manifest of an installer Job. Out: the shims on its node, by handler. Pure. Called by the demo and by tests,
which show the handlers in the status of the Node. Invariant: a Job that a real installer would refuse changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis import names
from trellis.installer_api.spec import SpecError, WantedShim, parse_spec
from trellis.provisioning.views import decode_digests

Manifest = dict[str, Any]


@dataclass
class Disk:
    """The disk of one node: shims by handler; ``done``: uids of the Jobs that worked on it."""

    shims: dict[str, WantedShim] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    @property
    def handlers(self) -> list[str]:
        """The runtime handlers that containerd would report, sorted."""
        return sorted({"runc", *self.shims})

    def run(self, job: Manifest) -> None:
        """Apply the operations of the containers of a Job.

        Raises:
            SpecError: a real installer would refuse it.
            LookupError: the Job has no operation, or lacks an annotation.
        """
        pod = job["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            self._run(container, job["metadata"]["annotations"])

    def _run(self, container: Manifest, annotations: Mapping[str, str]) -> None:
        environment = {item["name"]: item.get("value", "") for item in container["env"]}
        if names.INSTALLER_SPEC not in environment:
            handlers = filter(None, annotations.get(names.ANNOTATION_HANDLER, "").split(","))
            self.shims |= {handler: WantedShim("legacy", handler, "", "legacy") for handler in handlers}
            return
        match container["args"]:
            case ["install"]:
                self._install(environment[names.INSTALLER_SPEC], decode_digests(annotations[names.ANNOTATION_SHIMS]))
            case ["uninstall"] | ["uninstall", "--force"]:
                self._uninstall(environment[names.INSTALLER_SPEC])
            case other:
                message = f"no operation: {other}"
                raise SpecError(message)

    def _install(self, text: str, promised: Mapping[str, str]) -> None:
        spec = parse_spec(text)
        for wanted in spec.shims:
            former = self.shims.get(wanted.handler)
            if former is not None and former.owner != wanted.owner:
                message = f"HandlerConflict: {wanted.handler} belongs to {former.owner}, not to {wanted.owner}"
                raise SpecError(message)
            if promised.get(wanted.name) != wanted.digest:
                message = f"the Job promises {dict(promised)}, and installs {wanted.name}={wanted.digest}"
                raise SpecError(message)
            if spec.require_checksum and not all(source.is_pinned for source in wanted.sources):
                message = f"ChecksumMissing: {wanted.name}"
                raise SpecError(message)
        self.shims |= {wanted.handler: wanted for wanted in spec.shims}

    def _uninstall(self, text: str) -> None:
        for wanted in parse_spec(text, removal=True).shims:
            meant = [
                handler
                for handler, shim in self.shims.items()
                if shim.owner == wanted.owner and wanted.handler in {"", handler}
            ]
            for handler in meant:
                del self.shims[handler]
