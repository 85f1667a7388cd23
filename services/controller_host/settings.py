"""Settings of controller_host from the environment. No other module of the service reads the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator, Field

from controller_host.domain.views import parse_bytes
from trellis.config.settings import Seconds, ServiceSettings
from trellis.config.value_schema import number_schema
from trellis.events.subjects import CONTROLLER_HOST
from trellis.registries.domain.addresses import Network

_RESOURCE = re.compile(r"(?:(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)/)?v[a-z0-9]{1,62}/[A-Za-z][A-Za-z0-9]{0,62}")
_NEVER: Final = "v1/Secret"


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _resources(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _RESOURCE.fullmatch(value):
            message = f"needs kinds as <apiVersion>/<kind>, e.g. v1/ConfigMap or batch/v1/Job, not {value!r}"
            raise ValueError(message)
        if value == _NEVER:
            message = "needs kinds without v1/Secret: Secrets are never watched, a controller reads them with get"
            raise ValueError(message)
    return tuple(dict.fromkeys(values))


def _bytes(value: object) -> object:
    try:
        return parse_bytes(value) if isinstance(value, str) else value
    except ValueError:
        message = "needs a quantity of memory, e.g. 512Mi or 2Gi; 0 means unlimited"
        raise ValueError(message) from None


def _data_dir() -> Path:
    """Return the default data directory for the current user."""
    if os.geteuid() == 0:
        return Path("/var/lib/trellis/controllers")
    return Path("~/.local/state/trellis/controllers").expanduser()


def _home(value: Path) -> Path:
    return value.expanduser().absolute()


Resources = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_resources)]
Networks = Annotated[tuple[Network, ...], BeforeValidator(_listed)]
Bytes = Annotated[
    int, BeforeValidator(_bytes), Field(ge=0), number_schema("[0-9]+(?:\\.[0-9]+)?(?:Ki|Mi|Gi|k|M|G)?", minimum=0)
]
Directory = Annotated[Path, AfterValidator(_home)]


class Settings(ServiceSettings):
    """Settings of controller_host."""

    service: ClassVar[str] = CONTROLLER_HOST

    controller_resources: Resources = Field(
        default=("v1/ConfigMap", "batch/v1/Job"),
        description="Kinds that controllers may watch, as <apiVersion>/<kind>, separated by commas. The service "
        "account of the service needs to list and watch them in all namespaces.",
    )
    controller_threads: int = Field(
        default=128,
        ge=1,
        le=1024,
        description="Threads that call controllers, and so the maximum number of concurrent calls.",
    )
    controller_memory_budget: Bytes = Field(
        default=512 * 2**20,
        description="Memory of all controllers that are not suspended. Above it, the least recently called controllers "
        "are suspended to disk. 0: no limit.",
    )
    controller_max_memory: Bytes = Field(default=512 * 2**20, description="Maximum of `limits.memory` of a controller.")
    controller_max_cpu_per_call: Annotated[Seconds, Field(gt=0)] = Field(
        default=30.0, description="Maximum of `limits.cpuPerCall` of a controller."
    )
    controller_max_time_per_call: Annotated[Seconds, Field(gt=0)] = Field(
        default=120.0, description="Maximum of `limits.timePerCall` of a controller."
    )
    controller_max_calls_per_second: int = Field(
        default=10_000, ge=1, description="Maximum of `limits.callsPerSecond` of a controller."
    )
    controller_max_host_calls_per_second: int = Field(
        default=1000, ge=1, description="Maximum of `limits.hostCallsPerSecond` of a controller."
    )
    controller_pinned_per_namespace: Bytes = Field(
        default=256 * 2**20,
        description="Total `limits.memory` of the controllers of one namespace with `idle.policy: Pinned`. 0: none may "
        "be pinned.",
    )
    controller_log_lines: int = Field(
        default=100,
        ge=1,
        description="Log lines per second of one controller, of 256 characters each. Further lines are dropped and "
        "counted.",
    )
    controller_data_dir: Directory = Field(
        default_factory=_data_dir,
        description="Directory of the snapshots of suspended controllers and of compiled modules. The service creates "
        "it with access for its own user only.",
    )
    controller_modules_dir: Directory | None = Field(
        default=None, description="Directory below which `module.path` and `module.pvc` of controllers are read."
    )
    controller_source_networks: Networks = Field(
        default=(),
        description="Private networks, separated by commas, that modules may be downloaded from, e.g. 10.0.0.0/8.",
    )
    controller_compile_memory: Annotated[Bytes, Field(ge=2**28)] = Field(
        default=2 * 2**30,
        description="Memory limit for the compilation of one module. Each compilation has its own process, with at "
        "most two at the same time. Modules that need more are rejected.",
    )
    controller_compile_cpu: Annotated[Seconds, Field(ge=1)] = Field(
        default=120.0,
        description="CPU time limit for the compilation of one module. Modules that need more are rejected.",
    )
    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0,
        description="Interval of the checks for changes of the ConfigMaps and Secrets that controllers refer to, and "
        "of modules without a checksum. Controllers share a check of a module for half of this time.",
    )
