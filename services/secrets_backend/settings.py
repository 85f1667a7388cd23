"""Settings of secrets_backend from the environment. No other module of the service reads the environment."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from trellis.config.settings import Seconds, ServiceSettings
from trellis.config.value_schema import text_schema
from trellis.events.subjects import SECRETS_BACKEND

_BACKEND = re.compile(r"[A-Za-z0-9_-]{1,63}")
_USER = re.compile(r"[^\s,\x00-\x1f\x7f]{1,253}")


def _backend(value: str) -> str:
    if not _BACKEND.fullmatch(value):
        message = "needs the name that hosts ask for: at most 63 letters, digits, '-' and '_'"
        raise ValueError(message)
    return value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _users(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _USER.fullmatch(value) or not value.isascii():
            message = f"needs user names of Kubernetes separated by commas, and {value!r} is none"
            raise ValueError(message)
    return tuple(dict.fromkeys(values))


Backend = Annotated[str, AfterValidator(_backend), text_schema(_BACKEND.pattern)]
Users = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_users)]


class Settings(ServiceSettings):
    """Settings of secrets_backend."""

    service: ClassVar[str] = SECRETS_BACKEND

    secrets_backend: Backend = Field(
        default="kube", description="Name of the backend, to which the policy of an application refers as `backend`."
    )
    secrets_users: Users = Field(
        default=(),
        description="Kubernetes users, separated by commas, that Secrets may be read as if a SecretGrant lists them "
        "too.",
    )
    secrets_entity_rate: float = Field(
        default=1000.0,
        ge=0,
        allow_inf_nan=False,
        description="Requests per second of one component or provider, with a burst of the same size. 0: no limit.",
    )
    secrets_cache_ttl: Annotated[Seconds, Field(ge=0)] = Field(
        default=0.0,
        description="Cache TTL for Secrets. Revoked permissions take effect after this TTL. 0 disables the cache.",
    )
    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="Interval of the checks for changes of the Secrets that host groups refer to."
    )
