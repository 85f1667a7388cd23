"""Rows of WasmControllers. Pure: manifests in, rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

HOST: Final = "controller-host"


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """One WasmController; its figures are at most a minute old. ``problem``: "" if it is ready."""

    namespace: str
    name: str
    state: str
    ready: bool
    problem: str
    fault: Mapping[str, str]
    figures: Mapping[str, Any]
    module: Mapping[str, Any]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state or None,
            "ready": self.ready,
            "problem": self.problem or None,
            "resident_bytes": self.figures.get("residentBytes"),
            "disk_bytes": self.figures.get("snapshotBytes"),
            "calls": self.figures.get("calls"),
            "wakes": self.figures.get("wakes"),
            "wake_p99": self.figures.get("wakeP99"),
            "traps": self.figures.get("traps"),
            "last_fault": dict(self.fault) or None,
            "module_sha256": self.module.get("sha256"),
        }


def controller_row(manifest: Mapping[str, Any]) -> ControllerRow:
    """Return the row of a WasmController as the API server returns it."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    ready = next((condition for condition in status.get("conditions") or () if condition.get("type") == "Ready"), None)
    problem = "" if ready is None or ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"
    if ready is None:
        problem = f"{HOST} has not reconciled it yet: start it with `trellis run {HOST}` if it does not run"
    return ControllerRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        state=str(status.get("state") or ""),
        ready=ready is not None and ready["status"] == "True",
        problem=problem,
        fault=status.get("lastFault") or {},
        figures=status,
        module=status.get("module") or {},
    )
