"""Events about host groups and their pods, published by ``host_manager``. Key: namespace and name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class HostsEventData(EventData):
    """Common fields of the events about a host group."""

    noun: ClassVar[str] = "hosts"

    namespace: str = Field(min_length=1, description="metadata.namespace of the WasmCloudHostConfig")
    name: str = Field(min_length=1, description="metadata.name of the WasmCloudHostConfig")
    uid: str = Field(min_length=1, description="metadata.uid of the WasmCloudHostConfig")
    lattice: str = Field(description="spec.lattice")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the host group."""
        return (self.namespace, self.name)


class HostsReady(HostsEventData):
    """All hosts of a host group are ready and up to date."""

    event_name: ClassVar[str] = "ready"

    generation: int = Field(ge=0, description="metadata.generation of the host group that the event refers to")
    hosts: int = Field(ge=0, description="number of hosts")


class HostsRemoved(HostsEventData):
    """A host group was deleted; its pods terminate."""

    event_name: ClassVar[str] = "removed"


class HostPodEventData(EventData):
    """Common fields of the events about the pod of a host."""

    noun: ClassVar[str] = "host_pod"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Pod")
    name: str = Field(min_length=1, description="metadata.name of the Pod")
    uid: str = Field(min_length=1, description="metadata.uid of the Pod")
    group: str = Field(min_length=1, description="name of the WasmCloudHostConfig of the pod, in the same namespace")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the pod."""
        return (self.namespace, self.name)


class HostPodReady(HostPodEventData):
    """The pod of a host is ready and reachable."""

    event_name: ClassVar[str] = "ready"

    addresses: list[str] = Field(min_length=1, description="status.podIPs, IPv4 and IPv6")
    ports: list[int] = Field(default_factory=list, description="containerPorts of the pod")
    node: str = Field(description="spec.nodeName")
    lattice: str = Field(description="name of the lattice that the host joins")
    labels: dict[str, str] = Field(
        default_factory=dict, description="labels of the host, used by the selectors of applications"
    )


class HostPodGone(HostPodEventData):
    """The pod of a host is no longer ready, terminates, or was deleted."""

    event_name: ClassVar[str] = "gone"
