"""Views of WasmControllers, small enough to cache ten thousand of them, and the parser of their spec.

Pure. In: manifests of the API server. Out: views, and the spec in numbers. Called by the informer and ``hosting``.
Invariant: an object that admission would reject today, but that was stored before, has a view without a spec.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

import orjson
from pydantic import ValidationError

from controller_host.domain.watch_specs import WatchSpec, specs_of
from trellis.config.durations import parse_seconds
from trellis.crds.wasm_controllers import IdlePolicy, Module, WasmControllerSpec
from trellis.limits.compact import compact

T = TypeVar("T")

MEMORY_BYTES: Final = 64 * 2**20
CPU_DEFAULT: Final = 1.0
WALL_DEFAULT: Final = 30.0
"""Seconds per call."""
CALLS_PER_SECOND: Final = 50
HOST_CALLS_PER_SECOND: Final = 100
INVALID_SPEC: Final = "InvalidSpec"
"""Reason for a spec that cannot be parsed."""
SUSPEND_AFTER_DEFAULT: Final = 30.0
"""Seconds."""
_UNREADABLE: Final = b'{"nested":"too deep"}'
"""Placeholder for a spec that cannot be serialized; a WasmController does not have this field."""
_NESTED: Final = "spec.config: is nested too deep: use at most 200 levels"
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_QUANTITY = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?)(?P<unit>Ki|Mi|Gi|k|M|G|)")


@dataclass(frozen=True, slots=True)
class ControllerView:
    """View of a WasmController. Equality ignores the status, which controller_host itself writes."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: bytes
    """JSON."""
    status: bytes = field(compare=False, repr=False)
    """JSON; ``{}`` if there is no status."""
    resource_version: str = field(compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def account(self) -> str:
        """Name of its ServiceAccount, "" if the spec does not contain it."""
        return str(orjson.loads(self.spec).get("serviceAccountName") or "")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a controller: bytes, seconds per call, calls and requests per second (0: no limit)."""

    memory_bytes: int = MEMORY_BYTES
    cpu_seconds: float = CPU_DEFAULT
    wall_seconds: float = WALL_DEFAULT
    calls_per_second: float = CALLS_PER_SECOND
    host_calls_per_second: float = HOST_CALLS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parsed spec, with defaults for missing fields. ``refs``: names of ConfigMaps, names of Secrets.

    ``source``: unique text for the module's source, its JSON; ``is_fixed``: the content of the source cannot change, as
    the spec has a checksum or a digest: only then equal text means equal bytes.
    """

    source: str
    is_fixed: bool
    account: str
    watches: tuple[WatchSpec, ...]
    config: bytes
    refs: tuple[tuple[str, ...], tuple[str, ...]]
    bounds: Bounds
    suspend_after: float | None
    """Seconds; None: never."""
    paused: bool

    def module(self) -> Module:
        """Return the module of the spec; its model would need most of the memory of a parsed spec."""
        return Module.model_validate_json(self.source)


def view_controller(manifest: Mapping[str, Any]) -> ControllerView:
    """Return the view of a WasmController."""
    metadata = manifest["metadata"]
    return ControllerView(
        namespace=sys.intern(metadata["namespace"]),
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
    except TypeError:  # the API server accepts more nesting levels than orjson writes
        return otherwise


def read_spec(view: ControllerView) -> Wanted:
    """Return the parsed spec of a view.

    Raises:
        ValueError: the spec is invalid; the message names the field.
    """
    if view.spec == _UNREADABLE:
        raise ValueError(_NESTED)
    try:
        spec = WasmControllerSpec.model_validate_json(view.spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":  # the JSON was written by _kept, so only its nesting can be invalid
            raise ValueError(_NESTED) from None
        raise ValueError(f"spec.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    idle = spec.idle
    pinned = idle is not None and idle.policy is IdlePolicy.PINNED
    suspend_after = None if idle is None else idle.suspend_after
    after = _read("idle.suspendAfter", parse_seconds, suspend_after, SUSPEND_AFTER_DEFAULT)
    return Wanted(
        source=_source(spec.module),
        is_fixed=_is_fixed(spec.module),
        account=spec.service_account_name,
        watches=specs_of(spec.watches, view.namespace),
        config=compact(spec.config or {}, option=orjson.OPT_SORT_KEYS),
        refs=(
            tuple(sorted(ref.name for ref in spec.config_map_refs or ())),
            tuple(sorted(ref.name for ref in spec.secret_refs or ())),
        ),
        bounds=_bounds(spec),
        suspend_after=None if pinned else after,
        paused=bool(spec.paused),
    )


def parse_bytes(quantity: int | str) -> int:
    """Return a quantity of memory in bytes: ``64Mi``, ``1.5G``, or a number.

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise ValueError("needs a quantity of memory, e.g. 64Mi")
    return int(Decimal(found["amount"]) * _UNITS[found["unit"]])


def digest(*parts: bytes) -> str:
    """Return a SHA-256 over parts, each prefixed with its length."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _source(module: Module) -> str:
    found = module.model_dump(by_alias=True, exclude_none=True)
    return sys.intern(orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode())  # many controllers share a module


def _is_fixed(module: Module) -> bool:
    return module.sha256 is not None or (module.oci is not None and "@sha256:" in module.oci.image)


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
    """Return the parsed value of a field, or the default for None; raises ValueError with the field's name."""
    try:
        return default if value is None else parse(value)
    except ValueError as error:
        message = f"spec.{field}: {error}"
        raise ValueError(message) from None
