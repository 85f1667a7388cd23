"""Settings of the console from the environment. No other module of the console reads the environment."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from console.domain.limits import VIEWERS
from trellis.config.settings import DnsLabel, HostNatsSettings, HttpUrl, Seconds
from trellis.config.value_schema import text_schema
from trellis.events.subjects import CONSOLE

_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class Auth(StrEnum):
    """The method by which the console identifies viewers."""

    TOKEN = "token"  # noqa: S105 - a mode, not a password
    PROXY = "proxy"


def _header(value: str) -> str:
    if not _HEADER.fullmatch(value):
        message = "needs the name of a header, such as X-Forwarded-User"
        raise ValueError(message)
    return value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Header = Annotated[str, AfterValidator(_header), text_schema(_HEADER.pattern)]
OwnFile = Annotated[Path, AfterValidator(Path.expanduser)]


class Settings(HostNatsSettings):
    """Settings of the console."""

    service: ClassVar[str] = CONSOLE

    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
    console_port: int = Field(default=8088, ge=0, le=65535, description="port of the console; 0 selects a free port")
    console_address: str | None = Field(
        default=None, description="listen address of the console; all addresses if unset"
    )
    console_url: HttpUrl | None = Field(
        default=None,
        description="public URL of the console, https://console.example; the Host header if unset",
    )
    console_auth: Auth = Field(
        default=Auth.TOKEN,
        description="token: viewers log in with a bearer token; proxy: a reverse proxy authenticates viewers",
    )
    console_user_header: Header = Field(default="X-Forwarded-User", description="header of the proxy with the user")
    console_groups_header: Header = Field(
        default="X-Forwarded-Groups",
        description="header of the proxy with the groups, separated by commas, or one header per group",
    )
    console_proxy_secret_file: OwnFile | None = Field(
        default=None, description="file with the value of X-Trellis-Proxy-Secret, at least 32 characters"
    )
    console_proxy_ca_file: OwnFile | None = Field(
        default=None, description="CA certificates (PEM) that verify the client certificate of the proxy"
    )
    console_proxy_names: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(), description="permitted names in the client certificate of the proxy"
    )
    console_system_identities: bool = Field(
        default=False, description="accept users and groups of the proxy that begin with system:"
    )
    console_tls_cert_file: OwnFile | None = Field(default=None, description="TLS certificate (PEM) of the console")
    console_tls_key_file: OwnFile | None = Field(default=None, description="TLS private key (PEM) of the console")
    console_session_ttl: Annotated[Seconds, Field(gt=0)] = Field(
        default=8 * 3600.0, description="duration of a session with a token"
    )
    console_viewers: int = Field(
        default=VIEWERS,
        ge=1,
        le=200,
        description="maximum number of viewers at a time",
    )
    jaeger_url: HttpUrl | None = Field(default=None, description="URL of Jaeger's query API, http://host:16686")
    jaeger_link: HttpUrl | None = Field(default=None, description="public URL of Jaeger for links; no links if unset")

    @property
    def tls(self) -> bool:
        """True if the console's own port uses TLS."""
        return self.console_tls_cert_file is not None

    @property
    def secure(self) -> bool:
        """True if browsers use TLS, as far as the settings show."""
        return self.tls or (self.console_url or "").startswith("https://")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.console_tls_cert_file is None) != (self.console_tls_key_file is None):
            message = "TRELLIS_CONSOLE_TLS_CERT_FILE and TRELLIS_CONSOLE_TLS_KEY_FILE: one is set, needs both or none"
            raise ValueError(message)
        if self.console_proxy_ca_file is not None and not (self.tls and self.console_proxy_names):
            message = (
                "TRELLIS_CONSOLE_PROXY_CA_FILE: needs TRELLIS_CONSOLE_PROXY_NAMES, and TLS of the console's own port "
                "(TRELLIS_CONSOLE_TLS_CERT_FILE)"
            )
            raise ValueError(message)
        verified_by = self.console_proxy_secret_file or self.console_proxy_ca_file
        if self.console_auth is Auth.PROXY and not verified_by:
            message = (
                "TRELLIS_CONSOLE_AUTH: has proxy, needs TRELLIS_CONSOLE_PROXY_SECRET_FILE or "
                "TRELLIS_CONSOLE_PROXY_CA_FILE: otherwise any client that reaches the port can impersonate any user"
            )
            raise ValueError(message)
        return self
