"""Settings that all services read from the environment or command line, and the reports of invalid ones.

In: ``TRELLIS_*`` variables and overrides from flags. Out: a frozen settings object, or :class:`SettingsError` with a
line for each error. Called by each ``main``; services extend :class:`ServiceSettings`.
Invariant: a message names the variable, its value and the valid ones, and contains no password.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    FilePath,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from trellis.config.authorities import trust
from trellis.config.durations import Seconds
from trellis.config.errors import SettingsError, problem_lines, renamed_variables, unknown_variables
from trellis.config.nats_credentials import Credentials, CredentialsError, Kind
from trellis.config.value_schema import listed_schema, text_schema
from trellis.installer_api.redaction import redact_url

__all__ = [
    "DnsLabel",
    "HttpUrl",
    "LogLevel",
    "Namespaces",
    "NatsUrl",
    "Seconds",
    "ServiceSettings",
    "SettingsError",
    "Subdomain",
    "exit_on_settings_error",
    "load",
    "redact_url",
    "unknown_variables",
]

PREFIX: Final = "TRELLIS_"
_EXIT_STATUS: Final = 2
_NATS_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

S = TypeVar("S", bound=BaseSettings)


def _nats_url(value: str) -> str:
    for url in value.split(","):
        parts = _split(url.strip())
        if parts is None or parts[0] not in _NATS_SCHEMES:
            message = "needs an address such as nats://host:4222, tls://host:4222 or ws://host:8080"
            raise ValueError(message)
    return value


def _http_url(value: str) -> str:
    parts = _split(value)
    if parts is None or parts[0] not in {"http", "https"}:
        message = "needs an address such as http://host:4318"
        raise ValueError(message)
    return value


def _split(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL, or None if it has no host or an invalid port."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number from 0 to 65535
    except ValueError:
        return None
    return (parts.scheme, parts.hostname) if parts.hostname else None


def _dns_label(value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        message = "needs at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends"
        raise ValueError(message)
    return value


def _subdomain(value: str) -> str:
    if not _SUBDOMAIN.fullmatch(value):
        message = "needs the name of an object: lower-case letters, digits, dots and dashes, as kubectl shows it"
        raise ValueError(message)
    return value


def _listed(value: object) -> object:
    """Split a text at commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _namespaces(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _DNS_LABEL.fullmatch(value):
            message = f"needs names of namespaces separated by commas; {value!r} is invalid"
            raise ValueError(message)
    return tuple(dict.fromkeys(values))


def _home(value: Path) -> Path:
    return value.expanduser()


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _identity() -> str:
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


DnsLabel = Annotated[str, AfterValidator(_dns_label), text_schema(_DNS_LABEL.pattern)]
Subdomain = Annotated[str, AfterValidator(_subdomain), text_schema(_SUBDOMAIN.pattern)]
Namespaces = Annotated[
    tuple[str, ...], BeforeValidator(_listed), AfterValidator(_namespaces), listed_schema(_DNS_LABEL.pattern)
]
NatsUrl = Annotated[str, AfterValidator(_nats_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url), text_schema("https?://.+")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]


class ServiceSettings(BaseSettings):
    """Settings of every service; a variable is the field's name in capitals after ``TRELLIS_``.

    An empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        case_sensitive=False,
        # The types of Trellis parse the text of variables; the library would require JSON for complex types.
        enable_decoding=False,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    service: ClassVar[str] = "cli"
    """Service that reads the settings. The command line has the NATS user ``cli``."""

    kubeconfig: Annotated[Path, AfterValidator(_home)] | None = Field(
        default=None,
        validation_alias=AliasChoices("TRELLIS_KUBECONFIG", "KUBECONFIG"),
        description="Kubeconfig file. If unset: the service account of the pod, then ~/.kube/config.",
    )
    context: str | None = Field(default=None, description="Context of the kubeconfig. If unset: its current context.")
    nats_url: NatsUrl = Field(
        default="nats://127.0.0.1:4222", description="URL of NATS. Separate several servers by commas."
    )
    nats_nkey_file: Annotated[Path, AfterValidator(_home)] | None = Field(
        default=None,
        description="File with the nkey seed of the NATS user, read at each connect. `{service}` stands for the "
        "service's name.",
    )
    nats_credentials_file: Annotated[Path, AfterValidator(_home)] | None = Field(
        default=None, description="NATS credentials file, instead of an nkey seed."
    )
    nats_ca_file: Annotated[Path, AfterValidator(_home)] | None = Field(
        default=None,
        description="File with the CA certificates (PEM) that verify the NATS server. If unset: the CAs of the system.",
    )
    stream_replicas: int = Field(
        default=1,
        ge=1,
        le=5,
        description="Replicas of the JetStream streams that Trellis creates. Use 3 with a NATS cluster.",
    )
    cluster: DnsLabel | None = Field(
        default=None,
        description="Name of this cluster in NATS subjects. If unset: the first 8 characters of the UID of "
        "kube-system.",
    )
    namespace: DnsLabel = Field(
        default="trellis-system", description="Namespace of the Leases and of the rollout ledger."
    )
    health_port: int = Field(
        default=8080, ge=0, le=65535, description="Port of /readyz and /metrics. 0: any free port."
    )
    otlp_endpoint: HttpUrl | None = Field(
        default=None,
        validation_alias=AliasChoices("TRELLIS_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="OTLP/HTTP endpoint for traces, e.g. http://host:4318. If unset, no traces are exported.",
    )
    trace_sample_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Fraction of the traces started here that is exported, 0 to 1. If unset: OTEL_TRACES_SAMPLER, else "
        "1.",
    )
    log_format: Annotated[Literal["auto", "json", "text"], BeforeValidator(_lower)] = Field(
        default="auto", description="Log format: json, text or auto. auto: text on a terminal, otherwise JSON."
    )
    log_level: LogLevel = Field(
        default="info",
        description="Log level: debug, info, warning or error. Libraries log from warning on, unless it is debug.",
    )
    identity: str = Field(
        default_factory=_identity,
        min_length=1,
        description="Name of this process in Leases. Default: host name, process ID and a random suffix.",
    )
    shutdown_grace_period: Annotated[Seconds, Field(gt=0)] = Field(
        default=20.0, description="Time for running work to finish after SIGTERM."
    )

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """The servers of ``nats_url``, which separates them by commas."""
        return tuple(url.strip() for url in self.nats_url.split(","))

    @property
    def nats_credentials(self) -> Credentials | None:
        """NATS user of the service and CA file for the server; None if the URL contains everything."""
        if self.nats_nkey_file is not None:
            return Credentials(self.nats_nkey_file, Kind.NKEY, self.nats_ca_file)
        if self.nats_credentials_file is not None:
            return Credentials(self.nats_credentials_file, Kind.CREDENTIALS, self.nats_ca_file)
        return Credentials(None, Kind.ADDRESS, self.nats_ca_file) if self.nats_ca_file is not None else None

    @field_validator("nats_nkey_file", "nats_credentials_file")
    @classmethod
    def _usable(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        """Return the path with the name of this service; reject a file that cannot be used."""
        if value is None:
            return None
        path = Path(str(value).replace("{service}", cls.service))
        try:
            Credentials(path, Kind.NKEY if info.field_name == "nats_nkey_file" else Kind.CREDENTIALS).read()
        except CredentialsError as error:
            raise ValueError(str(error) if path == value else f"{error}, for {path}") from None
        return path

    @field_validator("nats_ca_file")
    @classmethod
    def _authorities(cls, value: Path | None) -> Path | None:
        """Reject a file without certificates."""
        if value is not None:
            try:
                trust(value)
            except CredentialsError as error:
                raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        if self.nats_nkey_file is not None and self.nats_credentials_file is not None:
            message = "TRELLIS_NATS_NKEY_FILE and TRELLIS_NATS_CREDENTIALS_FILE: are both set, needs one of them"
            raise ValueError(message)
        return self


class HostNatsSettings(ServiceSettings):
    """Settings of programs that can receive the heartbeats of hosts of wasmCloud v2."""

    v2_nats: NatsUrl | None = Field(default=None, description="URL of the NATS of wasmCloud v2")
    v2_nats_credentials_file: FilePath | None = Field(
        default=None, description="NATS credentials file (user JWT and seed) for the NATS of wasmCloud v2"
    )
    v2_nats_ca_file: FilePath | None = Field(
        default=None, description="CA certificates (PEM) that verify the NATS of wasmCloud v2"
    )
    v2_nats_certificate_file: FilePath | None = Field(
        default=None,
        description="client certificate and key (PEM) for the NATS of wasmCloud v2, which maps users by it",
    )


def load(cls: type[S], **overrides: Any) -> S:  # noqa: ANN401 (as the fields; pydantic checks them)
    """Return the settings from the environment; overrides (from flags) take precedence, None means not given.

    Raises:
        SettingsError: one line for each variable that is missing, invalid or set under a former name.
    """
    if renamed := renamed_variables():
        raise SettingsError(renamed)
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return cls(**given)
    except ValidationError as error:
        raise SettingsError(problem_lines(cls, error, given)) from None


@contextmanager
def exit_on_settings_error() -> Iterator[None]:
    """Print a :class:`SettingsError` to stderr and exit with status 2; for ``main``, also as a decorator."""
    try:
        yield
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 (logging is not set up yet)
        raise SystemExit(_EXIT_STATUS) from None
