"""What secrets_backend can be told; the only place that reads its environment."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from trellis.config.settings import Seconds, ServiceSettings
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


Backend = Annotated[str, AfterValidator(_backend)]
Users = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_users)]


class Settings(ServiceSettings):
    """Settings of secrets_backend."""

    service: ClassVar[str] = SECRETS_BACKEND

    secrets_backend: Backend = Field(
        default="kube", description="name of the backend: the `backend` of a policy in an application"
    )
    secrets_users: Users = Field(
        default=(),
        description="users that Secrets may be read as, separated by commas, where a SecretGrant lists them too",
    )
    secrets_entity_rate: float = Field(
        default=1000.0,
        ge=0,
        allow_inf_nan=False,
        description="requests a second that one component or provider may make, as many more at once; 0 is no limit",
    )
    secrets_cache_ttl: Annotated[Seconds, Field(ge=0)] = Field(
        default=0.0,
        description="how long a Secret that was read is given out again without asking the API server; 0 is never, and "
        "a right that is taken away counts only after this time",
    )
    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="how often the Secrets that a group of hosts names are looked at for changes"
    )
