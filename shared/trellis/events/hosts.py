"""Facts about groups of wasmCloud hosts and their pods, said by ``host_manager``. Key: namespace and name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData


class HostsFact(FactData):
    """What every fact about a group carries."""

    noun: ClassVar[str] = "hosts"

    namespace: str = Field(min_length=1, description="metadata.namespace of the WasmCloudHostConfig")
    name: str = Field(min_length=1, description="metadata.name of the WasmCloudHostConfig")
    uid: str = Field(min_length=1, description="metadata.uid of the WasmCloudHostConfig")
    lattice: str = Field(description="spec.lattice")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the group."""
        return (self.namespace, self.name)


class HostsReady(HostsFact):
    """Every host that a group is to have is ready, in the version that it is to have."""

    fact: ClassVar[str] = "ready"

    generation: int = Field(ge=0, description="metadata.generation that this is about")
    hosts: int = Field(ge=0, description="how many there are")


class HostsRemoved(HostsFact):
    """A group was deleted; its pods end."""

    fact: ClassVar[str] = "removed"


class HostPodFact(FactData):
    """What every fact about the pod of a host carries."""

    noun: ClassVar[str] = "host_pod"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Pod")
    name: str = Field(min_length=1, description="metadata.name of the Pod")
    uid: str = Field(min_length=1, description="metadata.uid of the Pod")
    group: str = Field(min_length=1, description="name of its WasmCloudHostConfig, in the same namespace")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the pod."""
        return (self.namespace, self.name)


class HostPodReady(HostPodFact):
    """The pod of a host is ready: what listens on it can be reached."""

    fact: ClassVar[str] = "ready"

    addresses: list[str] = Field(min_length=1, description="status.podIPs, IPv4 and IPv6")
    ports: list[int] = Field(default_factory=list, description="containerPorts that the pod declares")
    node: str = Field(description="spec.nodeName")
    lattice: str = Field(description="lattice that the host joins")
    labels: dict[str, str] = Field(default_factory=dict, description="labels of the host, which applications select by")


class HostPodGone(HostPodFact):
    """The pod of a host is not ready any more, ends, or is gone."""

    fact: ClassVar[str] = "gone"
