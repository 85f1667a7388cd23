"""What the console can be told; the only place that reads its environment."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from console.domain.limits import VIEWERS
from trellis.config.settings import DnsLabel, HttpUrl, Seconds, ServiceSettings
from trellis.events.subjects import CONSOLE

_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class Auth(StrEnum):
    """How the console learns who looks."""

    TOKEN = "token"  # noqa: S105 - a word, no password
    PROXY = "proxy"


def _header(value: str) -> str:
    if not _HEADER.fullmatch(value):
        message = "needs the name of a header, as X-Forwarded-User"
        raise ValueError(message)
    return value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Header = Annotated[str, AfterValidator(_header)]
OwnFile = Annotated[Path, AfterValidator(Path.expanduser)]


class Settings(ServiceSettings):
    """Settings of the console."""

    service: ClassVar[str] = CONSOLE

    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
    console_port: int = Field(default=8088, ge=0, le=65535, description="port of the console's pages; 0 is any")
    console_address: str | None = Field(
        default=None, description="address that the console listens on; every one if unset"
    )
    console_url: HttpUrl | None = Field(
        default=None,
        description="where browsers find the console, https://console.example; as its Host header says if unset",
    )
    console_auth: Auth = Field(
        default=Auth.TOKEN, description="token: a viewer gives a bearer token; proxy: a proxy in front says who looks"
    )
    console_user_header: Header = Field(default="X-Forwarded-User", description="header in which the proxy names him")
    console_groups_header: Header = Field(
        default="X-Forwarded-Groups", description="header with his groups, separated by commas, or one each"
    )
    console_proxy_secret_file: OwnFile | None = Field(
        default=None, description="file with what the proxy sends as X-Trellis-Proxy-Secret, at least 32 characters"
    )
    console_proxy_ca_file: OwnFile | None = Field(
        default=None, description="authorities (PEM) that the proxy's client certificate has to be of, for a proxy"
    )
    console_proxy_names: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(), description="names that such a certificate has to have one of"
    )
    console_system_identities: bool = Field(
        default=False, description="believe a proxy that somebody is a user or in a group that begins with system:"
    )
    console_tls_cert_file: OwnFile | None = Field(default=None, description="certificate (PEM) of the console's port")
    console_tls_key_file: OwnFile | None = Field(default=None, description="its key")
    console_session_ttl: Annotated[Seconds, Field(gt=0)] = Field(
        default=8 * 3600.0, description="after so long a viewer has to give his token again"
    )
    console_viewers: int = Field(
        default=VIEWERS,
        ge=1,
        le=200,
        description="viewers at a time for whom the cluster is watched; the next is refused",
    )
    jaeger_url: HttpUrl | None = Field(
        default=None, description="where the console asks for traces: Jaeger's query API, http://host:16686"
    )
    jaeger_link: HttpUrl | None = Field(default=None, description="where browsers find Jaeger; no links if unset")

    @property
    def tls(self) -> bool:
        """Whether the console's own port has TLS."""
        return self.console_tls_cert_file is not None

    @property
    def secure(self) -> bool:
        """Whether browsers come by TLS, as far as that is known."""
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
        proves = self.console_proxy_secret_file or self.console_proxy_ca_file
        if self.console_auth is Auth.PROXY and not proves:
            message = (
                "TRELLIS_CONSOLE_AUTH: has proxy, needs TRELLIS_CONSOLE_PROXY_SECRET_FILE or "
                "TRELLIS_CONSOLE_PROXY_CA_FILE: whoever reaches the port could be anybody otherwise"
            )
            raise ValueError(message)
        return self
