"""Views of Hosts.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariants: nothing raises; "unknown" and 0 in a
status mean not known. Source: runtime-operator 2.7. Each published heartbeat overwrites the status with "unknown" and
0; true values exist only after the operator's own request, once a minute, until the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.fields import Json, mapping, number, seconds, text
from trellis.v2.objects import Condition, Conditions, Meta, condition, view_conditions, view_meta

LABEL_GROUP: Final = "hostgroup"
"""Label of a Host with the name of its host group, which the chart of wasmCloud sets."""
_NOT_KNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class HostView:
    """A Host. ``address``: where its workloads are reached; ``last_seen``: Unix seconds; "" and None: not known."""

    meta: Meta
    id: str = ""
    address: str = ""
    port: int | None = None
    environment: str = ""
    version: str = ""
    system: str = ""
    memory_total: int | None = None
    memory_free: int | None = None
    components: int | None = None
    workloads: int | None = None
    last_seen: float | None = None
    conditions: Conditions = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the host, which ``hostSelector`` matches."""
        return self.meta.labels

    @property
    def group(self) -> str:
        """Name of its host group, "" if it has none."""
        return self.labels.get(LABEL_GROUP, "")

    @property
    def reporting(self) -> Condition:
        """The operator reaches the host."""
        return condition(self.conditions, "Reporting")

    @property
    def ready(self) -> Condition:
        """The operator places Workloads on the host."""
        return condition(self.conditions, "Ready")


def view_host(manifest: object) -> HostView:
    """Return the view of a Host, whose spec fields are at the top level."""
    data, status = mapping(manifest), mapping(manifest, "status")
    system = " ".join(filter(None, (_known(status, "osName"), _known(status, "osArch"))))
    return HostView(
        meta=view_meta(manifest),
        id=text(data, "hostId"),
        address=text(data, "hostname"),
        port=number(data, "httpPort") or None,
        environment=text(data, "environment"),
        version=_known(status, "version"),
        system=system,
        memory_total=number(status, "systemMemoryTotal") or None,
        memory_free=number(status, "systemMemoryFree") or None,
        components=number(status, "componentCount") or None,
        workloads=number(status, "workloadCount") or None,
        last_seen=seconds(text(status, "lastSeen")),
        conditions=view_conditions(status),
    )


def selects(selector: Mapping[str, str], host: HostView) -> bool:
    """Return whether a ``hostSelector`` matches a Host: an empty one matches each."""
    return all(host.labels.get(name) == value for name, value in selector.items())


def _known(status: Json, key: str) -> str:
    found = text(status, key)
    return "" if found == _NOT_KNOWN else found
