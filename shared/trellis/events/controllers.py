"""Facts about controllers in Wasm, said by ``controller_host``. Key: namespace and name.

Each stands for all that happened since the last of its kind about that controller: a controller may be woken a thousand
times a second. Invariant: nothing of an object, of a guest's memory or of its configuration is in any of them.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData

_LONGEST = 1024


class ControllerFact(FactData):
    """What every fact about a controller carries."""

    noun: ClassVar[str] = "controller"

    namespace: str = Field(min_length=1, description="metadata.namespace of the WasmController")
    name: str = Field(min_length=1, description="metadata.name of the WasmController")
    uid: str = Field(min_length=1, description="metadata.uid of the WasmController")
    count: int = Field(default=1, ge=1, description="how often it happened since the last fact of this kind")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the WasmController."""
        return (self.namespace, self.name)


class ControllerWoken(ControllerFact):
    """A controller that was put to disk was brought back, for something that it watches."""

    fact: ClassVar[str] = "woken"


class ControllerSuspended(ControllerFact):
    """A controller was put to disk, because nothing came for it or memory was short."""

    fact: ClassVar[str] = "suspended"

    bytes_on_disk: int = Field(default=0, ge=0, description="what its state takes there")


class ControllerTrapped(ControllerFact):
    """A call of a controller was ended: it failed, or took more than it may."""

    fact: ClassVar[str] = "trapped"

    reason: str = Field(description="what it was: Trapped, CpuExceeded, MemoryExceeded and so on")
    message: str = Field(default="", max_length=_LONGEST, description="the same for people")
