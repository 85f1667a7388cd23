"""The providers of wasmCloud v1 that hosts of wasmCloud v2 replace by plugins.

Pure. In: the image of a provider, the configurations of its link. Out: the settings of a host interface. Called by
``links`` and ``routes``. Invariant: no setting that may hold a credential is translated or named with its value.
Source: the providers of wasmCloud 1.x by the names of their images, and their settings; the interfaces that hosts of
v2 offer in heartbeats, their settings ``backend``, ``url``, ``buckets``, ``root``, ``subscriptions``, ``database``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from trellis_cli.migrate.model.to_v2.reading import Config

BUILTIN: Final = "wasmcloud+builtin://"
LOCAL_FILE: Final = "file://"
HTTP_SERVER: Final = "http-server"
HTTP_CLIENT: Final = "http-client"
BACKEND: Final = "backend"
URL: Final = "url"
BUCKETS: Final = "buckets"
SUBSCRIPTIONS: Final = "subscriptions"
POSTGRES: Final = "postgres"
"""Backend that has the address of its host without a name, and that of its Secret with one."""
FILESYSTEM: Final = "filesystem"
"""Backend with its data in a directory of the host."""
_UNSPECIFIED: Final = ("localhost", "")
_CREDENTIAL_PARTS: Final = frozenset("@?#")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that a plugin replaces. ``offered``: interfaces of the plugin; ``along``: those that go with any.

    ``settings``: the setting of the host interface by the name of a setting of the provider, in lower case.
    ``local``: without an address, the provider connects to the host's own NATS, or to localhost.
    """

    image: str
    namespace: str
    package: str
    offered: frozenset[str]
    backend: str
    settings: Mapping[str, str] = field(default_factory=dict)
    along: tuple[str, ...] = ()

    @property
    def wit(self) -> str:
        """``wasi:keyvalue``."""
        return f"{self.namespace}:{self.package}"


_KEYVALUE: Final = frozenset({"store", "atomics", "batch"})
_BLOBSTORE: Final = frozenset({"blobstore", "container", "types"})
_MESSAGING: Final = frozenset({"consumer", "handler", "types"})
_DATABASE: Final = frozenset({"query", "prepared", "types"})
_HTTP: Final = frozenset({"incoming-handler", "outgoing-handler"})

_ALL: Final = (
    Provider(HTTP_SERVER, "wasi", "http", _HTTP, ""),
    Provider("httpserver", "wasi", "http", _HTTP, ""),
    Provider(HTTP_CLIENT, "wasi", "http", _HTTP, ""),
    Provider("keyvalue-nats", "wasi", "keyvalue", _KEYVALUE, "nats", {"cluster_uri": URL, "bucket": BUCKETS}),
    Provider("keyvalue-redis", "wasi", "keyvalue", _KEYVALUE, "redis", {"url": URL}),
    Provider("kvredis", "wasi", "keyvalue", _KEYVALUE, "redis", {"url": URL}),
    Provider(
        "blobstore-nats", "wasi", "blobstore", _BLOBSTORE, "nats", {"cluster_uri": URL}, along=("container", "types")
    ),
    Provider(
        "blobstore-fs", "wasi", "blobstore", _BLOBSTORE, FILESYSTEM, {"root": "root"}, along=("container", "types")
    ),
    Provider(
        "messaging-nats",
        "wasmcloud",
        "messaging",
        _MESSAGING,
        "nats",
        {"cluster_uris": URL, "cluster_uri": URL, "subscriptions": SUBSCRIPTIONS},
        along=("types",),
    ),
    Provider(
        "sqldb-postgres",
        "wasmcloud",
        "postgres",
        _DATABASE,
        POSTGRES,
        {"postgres_database": "database", "database": "database"},
        along=("types",),
    ),
)
PROVIDERS: Final[Mapping[str, Provider]] = {item.image: item for item in _ALL}
PLUGINS: Final[Mapping[str, tuple[str, ...]]] = {
    "wasi:keyvalue": ("nats", "redis"),
    "wasi:blobstore": ("nats", FILESYSTEM),
    "wasmcloud:messaging": ("nats",),
    "wasmcloud:postgres": (POSTGRES,),
}
"""Backends of the plugins of hosts, by WIT package."""


def image_name(image: str) -> str:
    """Return the last part of the repository of an image: ``http-server`` of ``ghcr.io/wasmcloud/http-server:0.27``."""
    return image.removeprefix(BUILTIN).partition("@")[0].rpartition("/")[2].partition(":")[0].lower()


def provider_of(image: str) -> Provider | None:
    """Return the provider of an image, None if hosts of v2 have no plugin for it."""
    return PROVIDERS.get(image_name(image))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a host interface.

    ``done``: paths of translated entries. ``left``: path and key of entries without a translation. ``secret``: those
    that may hold a credential. ``external``: configurations that only the lattice has. ``local``: paths of addresses
    that refer to the host itself; ``more``: paths of addresses beyond the first, and of queue groups that differ.
    """

    values: Mapping[str, str]
    done: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    secret: tuple[tuple[str, str], ...] = ()
    external: tuple[Config, ...] = ()
    local: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def settings_of(provider: Provider, configs: Iterable[Config]) -> Settings:
    """Return the settings of a host interface from the configurations of a provider and its link, the later ones win.

    An address with credentials is omitted, like every setting that can hold one: ``Settings.secret`` has it.
    """
    values: dict[str, str] = {}
    done: list[str] = []
    left: list[tuple[str, str]] = []
    secret: list[tuple[str, str]] = []
    external: list[Config] = []
    local: dict[str, str] = {}
    more: list[str] = []
    for config, key, value in entries_of(configs, external):
        name, place = provider.settings.get(key.lower()), config.entry(key)
        if name is None and holds_credentials(key, value):
            secret.append((place, key))
        elif name is None:
            left.append((place, key))
        elif name == URL:
            first, _, rest = value.partition(",")
            values.pop(URL, None)
            local.pop(URL, None)
            if is_local(first):
                local[URL] = place
            if _may_contain_credentials(value):
                secret.append((place, key))
                continue
            done.append(place)
            more += [place] if rest else []
            if URL not in local:
                values[URL] = first.strip()
        elif name == SUBSCRIPTIONS:
            subjects, groups = _subscriptions(value)
            values.pop("consumer_group", None)
            values |= {SUBSCRIPTIONS: subjects} | ({"consumer_group": groups[0]} if len(groups) == 1 else {})
            done.append(place)
            more += [place] if len(groups) > 1 else []
        else:
            values[name] = value
            done.append(place)
    plain = ({BACKEND: provider.backend} if provider.backend else {}) | values
    return Settings(plain, tuple(done), tuple(left), tuple(secret), tuple(external), tuple(local.values()), tuple(more))


def entries_of(configs: Iterable[Config], external: list[Config]) -> Iterator[tuple[Config, str, str]]:
    """Yield the entries of configurations; those that only the lattice has are appended to ``external``."""
    for config in configs:
        if config.entries is None:
            external.append(config)
        for key, value in (config.entries or {}).items():
            yield config, key, value


def holds_credentials(key: str, value: str) -> bool:
    """Return whether an entry may hold a credential, by its key or by its form."""
    fragments = ("password", "passwd", "secret", "token", "seed", "jwt", "credential", "private", "apikey", "api_key")
    return any(fragment in key.lower() for fragment in fragments) or (
        "://" in value and _may_contain_credentials(value)
    )


def _may_contain_credentials(address: str) -> bool:
    """Return whether an address has a user, a query or a fragment: clients accept passwords and tokens in each."""
    return not _CREDENTIAL_PARTS.isdisjoint(address)


def is_local(address: str) -> bool:
    """Return whether an address refers to the host itself: there is a NATS on hosts of v1, and none on those of v2."""
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return False
    if host.lower() in _UNSPECIFIED:
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return ip.is_loopback or ip.is_unspecified


def _subscriptions(value: str) -> tuple[str, list[str]]:
    """Return the subjects, joined by commas, and the distinct queue groups of ``subject|group,subject``."""
    parts = [part.strip().partition("|") for part in value.split(",") if part.strip()]
    return ",".join(part[0] for part in parts), list(dict.fromkeys(part[2] for part in parts if part[2]))
