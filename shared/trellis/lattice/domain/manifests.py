"""Derives the listeners of an application, and their hosts, from its OAM manifest.

Pure. In: a manifest. Out: application → ports → hosts, without types of wasmCloud. Called by
``trellis.lattice.domain.applications`` and by services that reflect applications.

Rule: a capability listens on the address of its configuration if it is the source of a link for the incoming-handler of
``wasi:http``: any link in any order of traits, any image, any scaler, also a built-in of the host; an annotation of the
application names listeners of other protocols. Invariant: invalid manifests raise ``ManifestError`` only. Source: the
manifests of wadm 0.21 (former ``source_config``, present ``source.config``), IDs as wadm creates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.addresses import AddressError, Family, ListenAddress, read_address, read_port
from trellis.lattice.domain.oam import ManifestError, rows, strings, table, word

Configurations = Mapping[str, Mapping[str, str]]
"""The settings of the named configurations of a lattice, by name."""
SETTINGS: Final = ("address", "default_address", "port")
"""Settings of a configuration that define a listen address."""
Requirement = tuple[tuple[str, str], ...]
"""Labels that a host must have, all of them; every host meets an empty requirement."""

_CAPABILITY: Final = "capability"
_LINK: Final = "link"
_SCALERS: Final = ("spreadscaler", "daemonscaler")
_HTTP: Final = ("wasi", "http", "incoming-handler")
_VERSION: Final = "version"
_NOT_IN_IDS = re.compile(r"[^a-z0-9]")


_NONE_KNOWN: Final[Configurations] = MappingProxyType({})


class Protocol(StrEnum):
    """Protocol of a port."""

    HTTP = "http"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class Listener:
    """A port of an application. ``requirements``: a host must meet one of them; ``providers``: IDs of the providers.

    ``component``: name of the (first) component that listens on the port.
    """

    component: str
    port: int
    protocol: Protocol
    family: Family
    requirements: tuple[Requirement, ...]
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A listener that is unreachable, with a CamelCase reason and a message for users."""

    component: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Application:
    """An application of a manifest. ``configurations``: named ones that may contain a listen address, sorted."""

    name: str
    version: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    listeners: tuple[Listener, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    configurations: tuple[str, ...] = ()

    def annotation(self, name: str) -> str:
        """Return an annotation, "" if it is missing."""
        return dict(self.annotations).get(name, "")


@dataclass(frozen=True, slots=True)
class _Capability:
    """A capability with its place in the manifest, for messages."""

    name: str
    place: str
    properties: Mapping[str, Any]
    traits: tuple[tuple[str, Mapping[str, Any], str], ...]


def read_application(manifest: object, configurations: Configurations = _NONE_KNOWN) -> Application:
    """Return the application of a manifest with its listeners; ``configurations``: settings of named configurations.

    Raises:
        ManifestError: the manifest is invalid; the message names the field.
    """
    if not isinstance(manifest, dict):
        raise ManifestError("the manifest is not a map")
    name, annotations = _identity(manifest)
    found = list(_capabilities(table(manifest, "spec", "manifest")))
    named, wrong = _named(annotations)
    all_of_them = [
        listener for each in found for listener in _listeners_of(name, each, named.pop(each.name, ()), configurations)
    ]
    listeners = [item for item in all_of_them if isinstance(item, Listener)]
    unreachable = [*(item for item in all_of_them if isinstance(item, Unreachable)), *wrong]
    for component in named:
        reason = f"annotation {names.ANNOTATION_SERVICE_PORTS} names {component!r}, which is not a capability of {name}"
        unreachable.append(Unreachable(component, "UnknownComponent", reason))
    return Application(
        name,
        annotations.get(_VERSION, ""),
        tuple(sorted(annotations.items())),
        merged(listeners),
        tuple(unreachable),
        tuple(sorted({named_configuration for each in found for named_configuration in _named_configurations(each)})),
    )


def read_identity(manifest: object) -> tuple[str, str]:
    """Return name and version of a manifest.

    Raises:
        ManifestError: the manifest is invalid; the message names the field.
    """
    if not isinstance(manifest, dict):
        raise ManifestError("the manifest is not a map")
    name, annotations = _identity(manifest)
    return name, annotations.get(_VERSION, "")


def _identity(manifest: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    metadata = table(manifest, "metadata", "manifest")
    return word(metadata, "name", "metadata", required=True), strings(metadata, "annotations", "metadata")


def merged(listeners: list[Listener]) -> tuple[Listener, ...]:
    """Return one listener per port, in the order of first occurrence: ports of a Service are unique."""
    found: dict[int, Listener] = {}
    for listener in listeners:
        first = found.get(listener.port)
        found[listener.port] = listener if first is None else _joined(first, listener)
    return tuple(found.values())


def _joined(listener: Listener, other: Listener) -> Listener:
    return replace(
        listener,
        family=listener.family if listener.family is other.family else Family.ANY,
        protocol=listener.protocol if listener.protocol is other.protocol else Protocol.TCP,
        requirements=_alternatives({*listener.requirements, *other.requirements}),
        providers=tuple(sorted({*listener.providers, *other.providers})),
    )


def provider_id(application: str, component: str) -> str:
    """Return the ID that wadm creates for a component without an ID: ``hello_world-httpserver``."""
    return "-".join(_NOT_IN_IDS.sub("_", part.lower()) for part in (application, component))


def _capabilities(spec: Mapping[str, Any]) -> Iterator[_Capability]:
    for index, component in enumerate(rows(spec, "components", "spec")):
        place = f"spec.components[{index}]"
        if word(component, "type", place) != _CAPABILITY:
            continue
        traits = tuple(
            (word(trait, "type", inner), table(trait, "properties", inner), f"{inner}.properties")
            for number, trait in enumerate(rows(component, "traits", place))
            for inner in (f"{place}.traits[{number}]",)
        )
        name = word(component, "name", place, required=True)
        yield _Capability(name, place, table(component, "properties", place), traits)


def _listeners_of(
    application: str,
    capability: _Capability,
    ports: tuple[tuple[Protocol, str], ...],
    configurations: Configurations,
) -> Iterator[Listener | Unreachable]:
    base = Listener(
        capability.name,
        0,
        Protocol.HTTP,
        Family.ANY,
        _requirements(capability),
        (_id_of(application, capability),),
    )
    for rows_ in _configs(capability):
        settings = {key: value for row in rows_ for key, value in _settings(*row, configurations)}
        address = settings.get("address") or settings.get("default_address") or ""
        if not address and not settings.get("port"):
            named = " ".join(word(config, "name", place) for config, place in rows_) or "(it has none)"
            reason = f"{capability.name}: its configuration {named} contains no listen address"
            yield Unreachable(capability.name, "NoAddress", reason)
            continue
        yield _listener(base, address, settings.get("port", ""))
    for protocol, port in ports:
        yield _listener(replace(base, protocol=protocol), "", port)


def _listener(base: Listener, address: str, port: str) -> Listener | Unreachable:
    try:
        found: ListenAddress = read_address(address, port)
    except AddressError as error:
        return Unreachable(base.component, "InvalidAddress", f"{base.component}: {error}")
    if found.loopback:
        reason = f"{base.component} listens on the loopback address {address}: change it to 0.0.0.0:{found.port}"
        return Unreachable(base.component, "LoopbackAddress", reason)
    return replace(base, port=found.port, family=found.family)


def _is_http(link: Mapping[str, Any], place: str) -> bool:
    namespace, package, interface = _HTTP
    interfaces = link.get("interfaces") or []
    if not isinstance(interfaces, list):
        raise ManifestError(f"`{place}.interfaces` is not a list")
    named = [item.partition("@")[0] for item in interfaces if isinstance(item, str)]
    whose = (link.get("namespace"), str(link.get("package")).partition("@")[0])
    return whose == (namespace, package) and interface in named


def _configs(capability: _Capability) -> Iterator[list[tuple[Mapping[str, Any], str]]]:
    """Yield, for each HTTP link of a capability, the effective configurations with their paths."""
    own = f"{capability.place}.properties"
    for kind, link, place in capability.traits:
        if kind == _LINK and _is_http(link, place):
            source = table(link, "source", place)
            of_link = (source, "config", f"{place}.source") if source else (link, "source_config", place)
            yield [
                (config, f"{inner}.{key}[{index}]")
                for holder, key, inner in ((capability.properties, "config", own), of_link)
                for index, config in enumerate(rows(holder, key, inner))
            ]


def _settings(config: Mapping[str, Any], place: str, configurations: Configurations) -> Iterator[tuple[str, str]]:
    """Yield the settings of a configuration, inline or from the named one; keys in lower case."""
    if config.get("properties") is None:
        yield from configurations.get(word(config, "name", place), {}).items()
    else:
        yield from ((key.lower(), value) for key, value in strings(config, "properties", place).items())


def _named_configurations(capability: _Capability) -> Iterator[str]:
    """Yield the names of configurations without inline properties."""
    for configs in _configs(capability):
        for config, place in configs:
            if config.get("properties") is None and (name := word(config, "name", place)):
                yield name


def _requirements(capability: _Capability) -> tuple[Requirement, ...]:
    found: set[Requirement] = set()
    if capability.properties.get("application"):
        return ((),)  # wadm ignores scalers of a shared component here: those of its own application apply
    for kind, properties, place in capability.traits:
        if kind not in _SCALERS:
            continue
        spreads = rows(properties, "spread", place)
        for index, spread in enumerate(spreads):
            found.add(tuple(sorted(strings(spread, "requirements", f"{place}.spread[{index}]").items())))
        if not spreads:
            found.add(())
    return _alternatives(found)


def _alternatives(found: set[Requirement]) -> tuple[Requirement, ...]:
    """Return the requirements sorted; the empty one alone if there are none, or if it is one of them."""
    return ((),) if not found or () in found else tuple(sorted(found))


def _id_of(application: str, capability: _Capability) -> str:
    """Return the ID of the provider; a shared provider has the ID from its own application."""
    place = f"{capability.place}.properties"
    shared = table(capability.properties, "application", place)
    if shared:
        inner = f"{place}.application"
        return provider_id(
            word(shared, "name", inner, required=True), word(shared, "component", inner) or capability.name
        )
    return word(capability.properties, "id", place) or provider_id(application, capability.name)


def _named(annotations: Mapping[str, str]) -> tuple[dict[str, tuple[tuple[Protocol, str], ...]], list[Unreachable]]:
    """Return the ports of the annotation by component, ``db=5432,web=8080/http``, and its invalid parts."""
    found: dict[str, tuple[tuple[Protocol, str], ...]] = {}
    wrong: list[Unreachable] = []
    for part in filter(None, map(str.strip, annotations.get(names.ANNOTATION_SERVICE_PORTS, "").split(","))):
        component, _, rest = map(str.strip, part.partition("="))
        port, _, protocol = map(str.strip, rest.partition("/"))
        reason = "" if protocol in {"", *Protocol} else f"{protocol!r} is neither tcp nor http"
        try:
            read_port(port, part)
        except AddressError as error:
            reason = str(error)
        if reason:
            reason = (
                f"annotation {names.ANNOTATION_SERVICE_PORTS}: {reason}; write component=port, as db=5432,web=8080/http"
            )
            wrong.append(Unreachable(component, "InvalidAnnotation", reason))
        else:
            found[component] = (*found.get(component, ()), (Protocol(protocol or Protocol.TCP), port))
    return found, wrong
