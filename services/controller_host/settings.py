"""What controller_host can be told; the only place that reads its environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator, Field

from controller_host.domain.addresses import Network
from controller_host.domain.views import parse_bytes
from trellis.config.settings import Seconds, ServiceSettings
from trellis.events.subjects import CONTROLLER_HOST

_RESOURCE = re.compile(r"(?:(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)/)?v[a-z0-9]{1,62}/[A-Za-z][A-Za-z0-9]{0,62}")
_NEVER: Final = "v1/Secret"


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _resources(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _RESOURCE.fullmatch(value):
            message = f"needs kinds as <apiVersion>/<kind>, v1/ConfigMap or batch/v1/Job, and {value!r} is none"
            raise ValueError(message)
        if value == _NEVER:
            message = "needs kinds without v1/Secret: Secrets are never watched, a controller gets those it may read"
            raise ValueError(message)
    return tuple(dict.fromkeys(values))


def _bytes(value: object) -> object:
    try:
        return parse_bytes(value) if isinstance(value, str) else value
    except ValueError:
        message = "needs a quantity of memory, e.g. 512Mi or 2Gi; 0 is no limit"
        raise ValueError(message) from None


def _data_dir() -> Path:
    """Return where such data belongs on this machine, for this user."""
    if os.geteuid() == 0:
        return Path("/var/lib/trellis/controllers")
    return Path("~/.local/state/trellis/controllers").expanduser()


def _home(value: Path) -> Path:
    return value.expanduser().absolute()


Resources = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_resources)]
Networks = Annotated[tuple[Network, ...], BeforeValidator(_listed)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
Directory = Annotated[Path, AfterValidator(_home)]


class Settings(ServiceSettings):
    """Settings of controller_host."""

    service: ClassVar[str] = CONTROLLER_HOST

    controller_resources: Resources = Field(
        default=("v1/ConfigMap", "batch/v1/Job"),
        description="kinds that controllers may watch, separated by commas: v1/ConfigMap,batch/v1/Job; the service's "
        "own account has to be able to list and watch them in the whole cluster",
    )
    controller_threads: int = Field(
        default=128, ge=1, le=1024, description="threads that controllers are called in: so many are called at once"
    )
    controller_memory_budget: Bytes = Field(
        default=512 * 2**20,
        description="memory of all controllers that are not suspended, 512Mi; beyond it those that were called longest "
        "ago are put to disk. 0 is no limit",
    )
    controller_max_memory: Bytes = Field(
        default=512 * 2**20, description="the most that `limits.memory` of a controller may say"
    )
    controller_max_cpu_per_call: Annotated[Seconds, Field(gt=0)] = Field(
        default=30.0, description="the most that `limits.cpuPerCall` of a controller may say"
    )
    controller_max_time_per_call: Annotated[Seconds, Field(gt=0)] = Field(
        default=120.0, description="the most that `limits.timePerCall` of a controller may say"
    )
    controller_max_calls_per_second: int = Field(
        default=10_000, ge=1, description="the most that `limits.callsPerSecond` of a controller may say"
    )
    controller_max_host_calls_per_second: int = Field(
        default=1000, ge=1, description="the most that `limits.hostCallsPerSecond` of a controller may say"
    )
    controller_pinned_per_namespace: Bytes = Field(
        default=256 * 2**20,
        description="memory (`limits.memory`) of all controllers of a namespace whose `idle.policy` is Pinned; 0: none "
        "may be",
    )
    controller_log_lines: int = Field(
        default=100,
        ge=1,
        description="lines that a controller may log in a second, of 256 characters; more are counted, and left out",
    )
    controller_data_dir: Directory = Field(
        default_factory=_data_dir,
        description="directory of what suspended controllers have in memory, and of compiled modules; it is made if it "
        "does not exist, and nobody else may read it",
    )
    controller_modules_dir: Directory | None = Field(
        default=None, description="directory that `module.path` and `module.pvc` of controllers are below"
    )
    controller_source_networks: Networks = Field(
        default=(),
        description="networks that modules may be fetched from although they are not of the internet: 10.0.0.0/8",
    )
    controller_compile_memory: Annotated[Bytes, Field(ge=2**28)] = Field(
        default=2 * 2**30,
        description="memory that compiling one module may take, in a process of its own, two at most at a time; what "
        "takes more is refused",
    )
    controller_compile_cpu: Annotated[Seconds, Field(ge=1)] = Field(
        default=120.0, description="processor time that compiling one module may take; what takes more is refused"
    )
    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0,
        description="how often ConfigMaps and Secrets that a controller refers to, and modules without a checksum, are "
        "looked at for changes",
    )
