"""Events about WasmControllers, published by ``controller_host``. Key: namespace and name.

An event aggregates all occurrences since the previous event of its type about the controller, which may wake a thousand
times per second. Invariant: no event contains data of objects, of the memory of a controller or of its configuration.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData

_LONGEST = 1024


class ControllerEventData(EventData):
    """Common fields of the events about a WasmController."""

    noun: ClassVar[str] = "controller"

    namespace: str = Field(min_length=1, description="metadata.namespace of the WasmController")
    name: str = Field(min_length=1, description="metadata.name of the WasmController")
    uid: str = Field(min_length=1, description="metadata.uid of the WasmController")
    count: int = Field(default=1, ge=1, description="occurrences since the previous event of this type")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the WasmController."""
        return (self.namespace, self.name)


class ControllerWoken(ControllerEventData):
    """A suspended controller was woken by a change of an object that it watches."""

    event_name: ClassVar[str] = "woken"


class ControllerSuspended(ControllerEventData):
    """A controller was suspended to disk because it was idle or memory was low."""

    event_name: ClassVar[str] = "suspended"

    bytes_on_disk: int = Field(default=0, ge=0, description="size of its snapshot on disk, in bytes")


class ControllerTrapped(ControllerEventData):
    """A call of a controller trapped or exceeded a limit."""

    event_name: ClassVar[str] = "trapped"

    reason: str = Field(description="CamelCase reason: Trapped, CpuExceeded, MemoryExceeded, …")
    message: str = Field(default="", max_length=_LONGEST, description="human-readable message")
