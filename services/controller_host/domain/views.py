"""What is looked at of a WasmController: small enough to be held ten thousand times, and what its spec says.

Pure. In: manifests as the API server gives them. Out: views, and the spec in numbers. Called by the informer and
``hosting``. Invariant: what admission would refuse, and was stored before it did, is a view without a spec.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError

from trellis.compact import compact
from trellis.config.durations import parse_seconds
from trellis.crds.wasm_controllers import IdlePolicy, Module, WasmControllerSpec, Watch

T = TypeVar("T")

MEMORY_BYTES: Final = 64 * 2**20
CPU_DEFAULT: Final = 1.0
WALL_DEFAULT: Final = 30.0
"""Seconds of one call."""
CALLS_PER_SECOND: Final = 50
HOST_CALLS_PER_SECOND: Final = 100
INVALID_SPEC: Final = "InvalidSpec"
"""Reason where a spec cannot be read."""
SUSPEND_AFTER_DEFAULT: Final = 30.0
"""Seconds."""
_UNREADABLE: Final = b'{"nested":"too deep"}'
"""In place of a spec that cannot be kept: a WasmController has no such field."""
_NESTED: Final = "spec.config: is nested too deep, at most 200 levels can be read: make it flatter"
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_QUANTITY = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?)(?P<unit>Ki|Mi|Gi|k|M|G|)")


@dataclass(frozen=True, slots=True)
class ControllerView:
    """One WasmController. Two are equal unless something was asked for: its status is our own writing."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: bytes
    """As JSON."""
    status: bytes = field(compare=False, repr=False)
    """As JSON; ``{}`` where there is none."""
    resource_version: str = field(compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def account(self) -> str:
        """Name of its ServiceAccount, "" if the spec does not say it."""
        return str(orjson.loads(self.spec).get("serviceAccountName") or "")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a controller may use: bytes, seconds of a call, calls and requests a second (0: no limit)."""

    memory_bytes: int = MEMORY_BYTES
    cpu_seconds: float = CPU_DEFAULT
    wall_seconds: float = WALL_DEFAULT
    calls_per_second: float = CALLS_PER_SECOND
    host_calls_per_second: float = HOST_CALLS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a spec says, with defaults where it says nothing. ``refs``: names of ConfigMaps, names of Secrets."""

    module: Module
    account: str
    watches: tuple[Watch, ...]
    config: bytes
    refs: tuple[tuple[str, ...], tuple[str, ...]]
    bounds: Bounds
    suspend_after: float | None
    """Seconds; None: never."""
    paused: bool

    @property
    def source(self) -> str:
        """What tells the module's source from any other; equal text means equal bytes only if ``is_fixed``."""
        return orjson.dumps(
            self.module.model_dump(by_alias=True, exclude_none=True), option=orjson.OPT_SORT_KEYS
        ).decode()

    @property
    def is_fixed(self) -> bool:
        """Whether what the source has cannot change: a checksum or a digest is said."""
        oci = self.module.oci
        return self.module.sha256 is not None or (oci is not None and "@sha256:" in oci.image)


def view_controller(manifest: Mapping[str, Any]) -> ControllerView:
    """Project a WasmController."""
    metadata = manifest["metadata"]
    return ControllerView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=_kept(manifest.get("spec") or {}, _UNREADABLE),
        status=_kept(manifest.get("status") or {}, b"{}"),
        resource_version=str(metadata.get("resourceVersion") or ""),
    )


def _kept(part: Mapping[str, Any], otherwise: bytes) -> bytes:
    try:
        return compact(part)
    except TypeError:  # the API server takes more levels than are written here
        return otherwise


def read_spec(view: ControllerView) -> Wanted:
    """Return what a spec says.

    Raises:
        ValueError: it cannot be read; the message names the field.
    """
    if view.spec == _UNREADABLE:
        raise ValueError(_NESTED)
    try:
        spec = WasmControllerSpec.model_validate_json(view.spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":  # it was written here, so that is all that it can be
            raise ValueError(_NESTED) from None
        raise ValueError(f"spec.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    idle = spec.idle
    pinned = idle is not None and idle.policy is IdlePolicy.PINNED
    said = None if idle is None else idle.suspend_after
    after = _read("idle.suspendAfter", parse_seconds, said, SUSPEND_AFTER_DEFAULT)
    return Wanted(
        module=spec.module,
        account=spec.service_account_name,
        watches=tuple(spec.watches),
        config=compact(spec.config or {}, option=orjson.OPT_SORT_KEYS),
        refs=(
            tuple(sorted(one.name for one in spec.config_map_refs or ())),
            tuple(sorted(one.name for one in spec.secret_refs or ())),
        ),
        bounds=_bounds(spec),
        suspend_after=None if pinned else after,
        paused=bool(spec.paused),
    )


def parse_bytes(quantity: int | str) -> int:
    """Return a quantity of memory in bytes: ``64Mi``, ``1.5G``, or a number.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise ValueError("needs a quantity of memory, e.g. 64Mi")
    return int(Decimal(found["amount"]) * _UNITS[found["unit"]])


def digest(*parts: bytes) -> str:
    """Return a SHA-256 over parts that are kept apart by their lengths."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _bounds(spec: WasmControllerSpec) -> Bounds:
    limits = spec.limits
    if limits is None:
        return Bounds()
    return Bounds(
        memory_bytes=_read("limits.memory", parse_bytes, limits.memory, MEMORY_BYTES),
        cpu_seconds=_read("limits.cpuPerCall", parse_seconds, limits.cpu_per_call, CPU_DEFAULT),
        wall_seconds=_read("limits.timePerCall", parse_seconds, limits.time_per_call, WALL_DEFAULT),
        calls_per_second=limits.calls_per_second or CALLS_PER_SECOND,
        host_calls_per_second=limits.host_calls_per_second or HOST_CALLS_PER_SECOND,
    )


def _read(field: str, parse: Callable[[Any], T], value: object, default: T) -> T:
    """Return what a field says, the default if it says nothing; raises ValueError with the field's name."""
    try:
        return default if value is None else parse(value)
    except ValueError as error:
        message = f"spec.{field}: {error}"
        raise ValueError(message) from None
