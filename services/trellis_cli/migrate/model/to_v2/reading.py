"""The application to convert, read from any manifest that wadm accepts.

Pure. In: a manifest of Kubernetes or wadm. Out: frozen parts, each with its path. Called by ``convert``.
Invariants: only an invalid manifest raises; a part of an unexpected type becomes an empty or unknown part, with its
path, so that the report names it. Source: the manifests of wadm 0.21, in the present form of ``lattice.projection``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trellis import names
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.reading import LatticeDataError

Manifest = Mapping[str, Any]

LINK: Final = "link"
SPREADSCALER: Final = "spreadscaler"
DAEMONSCALER: Final = "daemonscaler"
DEFAULT_LINK: Final = "default"
_CAPABILITY: Final = "capability"
_WRITTEN_BY_OTHERS: Final = frozenset(
    {
        "metadata.annotations.version",
        "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
        f"metadata.annotations.{names.ANNOTATION_APP_NAME}",
        f"metadata.annotations.{names.ANNOTATION_LAST_SYNCED}",
        f"metadata.annotations.{names.ANNOTATION_UNDEPLOY}",
    }
)
"""Metadata that is read elsewhere, or that kubectl and application_manager write for themselves."""
_OF_LINKS: Final = frozenset({"namespace", "package", "interfaces"})


class UnreadableError(ValueError):
    """The manifest is not one that wadm accepts; the text names the field."""


@dataclass(frozen=True, slots=True)
class Config:
    """A named configuration. ``entries``: None if the lattice has it; ``unreadable``: keys without a text value."""

    place: str
    name: str
    entries: Mapping[str, str] | None
    unreadable: tuple[str, ...] = ()

    def entry(self, key: str) -> str:
        """Return the path of an entry."""
        return f"{self.place}.properties.{key}"


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A secret of a component or of one end of a link."""

    place: str
    name: str
    policy: str
    key: str
    field: str
    version: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Part of the instances; ``weight`` as in wadm, 100 by default."""

    place: str
    name: str
    requirements: tuple[tuple[str, str], ...]
    weight: int


@dataclass(frozen=True, slots=True)
class Scaler:
    """A scaler. ``instances``: None if it is not a number that wadm accepts."""

    place: str
    kind: str
    instances: int | None
    spreads: tuple[Spread, ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """Configurations and secrets of one end of a link."""

    config: tuple[Config, ...] = ()
    secrets: tuple[SecretUse, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Paths of its parts."""
        return (*(item.place for item in self.config), *(item.place for item in self.secrets))


@dataclass(frozen=True, slots=True)
class Link:
    """A link. ``version``: of the WIT package, "" if none is given; ``name``: "" for the default link."""

    place: str
    source: str
    target: str
    namespace: str
    package: str
    version: str
    interfaces: tuple[str, ...]
    name: str
    source_end: Ends
    target_end: Ends

    @property
    def wit(self) -> str:
        """``wasi:http/incoming-handler``."""
        return f"{self.package_name}/{','.join(self.interfaces)}"

    @property
    def package_name(self) -> str:
        """``wasi:http``."""
        return f"{self.namespace}:{self.package}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A component or a provider. ``shared``: name of the application that has it, "" for this one."""

    place: str
    name: str
    provider: bool
    image: str
    shared: str
    id: str
    config: tuple[Config, ...]
    secrets: tuple[SecretUse, ...]
    scalers: tuple[Scaler, ...]
    links: tuple[Link, ...]
    unknown: tuple[tuple[str, str], ...]
    """Path and type of each trait that wadm stores and does not evaluate."""


@dataclass(frozen=True, slots=True)
class App:
    """An application. ``manifest``: its projection; ``ignored``: paths of fields that wadm ignores.

    ``of_tools``: paths of labels and annotations for deployment tools and for Trellis, which wadm does not receive.
    """

    name: str
    version: str
    pieces: tuple[Piece, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    policies: tuple[Manifest, ...]
    ignored: tuple[str, ...]
    of_tools: tuple[str, ...]
    manifest: Manifest

    @property
    def links(self) -> Iterator[Link]:
        """Yield all links, in the order of the manifest."""
        for piece in self.pieces:
            yield from piece.links


def read_app(manifest: object, name: str = "") -> App:
    """Return the application of a manifest; ``name`` replaces the name of the manifest.

    Raises:
        UnreadableError: wadm does not accept the manifest.
    """
    try:
        orjson.dumps(manifest)
        projection = project(manifest, name)
    except (LatticeDataError, TypeError, RecursionError) as error:
        raise UnreadableError(" ".join(str(error).split()) or type(error).__name__) from None
    metadata, spec = projection.manifest["metadata"], projection.manifest["spec"]
    _require_distinct(spec["components"])
    pieces = tuple(_piece(item, f"spec.components[{at}]") for at, item in enumerate(spec["components"]))
    return App(
        name=metadata["name"],
        version=projection.version,
        pieces=pieces,
        labels=metadata.get("labels") or {},
        annotations=metadata["annotations"],
        policies=tuple(spec.get("policies") or ()),
        ignored=projection.ignored,
        of_tools=tuple(_of_tools(manifest, metadata, projection.ignored)),
        manifest=projection.manifest,
    )


def _require_distinct(components: Sequence[Manifest]) -> None:
    """Raise UnreadableError if two components have one name: wadm refuses them, since links name components."""
    first: dict[str, int] = {}
    for at, item in enumerate(components):
        if (former := first.setdefault(item["name"], at)) != at:
            message = f"`spec.components[{at}].name` is {item['name']!r}, as that of `spec.components[{former}]`"
            raise UnreadableError(message)


def _of_tools(manifest: object, kept: Manifest, ignored: Collection[str]) -> Iterator[str]:
    """Yield the labels and annotations that the projection omits because they are for deployment tools or Trellis."""
    metadata = manifest["metadata"] if isinstance(manifest, dict) else {}
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or ():
            place = f"metadata.{kind}.{key}"
            if key not in (kept.get(kind) or ()) and place not in ignored and place not in _WRITTEN_BY_OTHERS:
                yield place


def _piece(item: Manifest, place: str) -> Piece:
    properties, inner = item["properties"], f"{place}.properties"
    shared = properties.get("application") or {}
    traits = [(f"{place}.traits[{at}]", trait) for at, trait in enumerate(item.get("traits") or ())]
    links = tuple(_link(trait, at, item["name"]) for at, trait in traits if _is_link(trait))
    scalers = tuple(_scaler(trait, at) for at, trait in traits if _is_scaler(trait))
    return Piece(
        place=place,
        name=item["name"],
        provider=item["type"] == _CAPABILITY,
        image=_text(properties.get("image")),
        shared=(_text(shared.get("name")) or "(unnamed)") if shared else "",
        id=_text(properties.get("id")),
        config=_configs(properties, inner),
        secrets=_secrets(properties, inner),
        scalers=scalers,
        links=links,
        unknown=tuple((at, trait["type"]) for at, trait in traits if not _is_link(trait) and not _is_scaler(trait)),
    )


def _is_link(trait: Manifest) -> bool:
    properties = trait["properties"]
    return (
        trait["type"] == LINK
        and isinstance(properties, dict)
        and {"namespace", "package", "interfaces"} <= {*properties}
    )


def _is_scaler(trait: Manifest) -> bool:
    properties = trait["properties"]
    known = trait["type"] in {SPREADSCALER, DAEMONSCALER}
    return known and isinstance(properties, dict) and "instances" in properties


def _scaler(trait: Manifest, place: str) -> Scaler:
    properties, inner = trait["properties"], f"{place}.properties"
    count = properties["instances"]
    spreads = [
        Spread(
            f"{inner}.spread[{at}]",
            _text(item.get("name")),
            tuple(sorted((key, _entry((key, value))[1] or str(value)) for key, value in item["requirements"].items())),
            weight if isinstance(weight := item.get("weight"), int) and not isinstance(weight, bool) else 100,
        )
        for at, item in enumerate(properties.get("spread") or ())
    ]
    whole = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    return Scaler(place, trait["type"], count if whole else None, tuple(spreads))


def _link(trait: Manifest, place: str, source: str) -> Link:
    properties, inner = trait["properties"], f"{place}.properties"
    package, _, version = _text(properties["package"]).partition("@")
    listed = properties["interfaces"] if isinstance(properties["interfaces"], list) else []
    named = [item.partition("@") for item in listed if isinstance(item, str) and item.partition("@")[0]]
    versions = [version, *(item[2] for item in named)]
    name = _text(properties.get("name"))
    target = properties["target"]
    return Link(
        place=place,
        source=source,
        target=target["name"],
        namespace=_text(properties["namespace"]),
        package=package,
        version=next(filter(None, versions), ""),
        interfaces=tuple(dict.fromkeys(item[0] for item in named)),
        name="" if name == DEFAULT_LINK else name,
        source_end=_ends(properties.get("source") or {}, f"{inner}.source"),
        target_end=_ends(target, f"{inner}.target"),
    )


def _ends(holder: Manifest, place: str) -> Ends:
    return Ends(_configs(holder, place), _secrets(holder, place))


def _configs(holder: Manifest, place: str) -> tuple[Config, ...]:
    return tuple(_config(item, f"{place}.config[{at}]") for at, item in enumerate(holder.get("config") or ()))


def _config(item: Manifest, place: str) -> Config:
    if item.get("properties") is None:
        return Config(place, item["name"], None)
    read = dict(map(_entry, item["properties"].items()))
    entries = {key: text for key, text in read.items() if text is not None}
    return Config(place, item["name"], entries, tuple(key for key, text in read.items() if text is None))


def _secrets(holder: Manifest, place: str) -> tuple[SecretUse, ...]:
    found = []
    for at, item in enumerate(holder.get("secrets") or ()):
        source = item["properties"]
        values = (source["policy"], source["key"], source.get("field"), source.get("version"))
        found.append(SecretUse(f"{place}.secrets[{at}]", item["name"], *map(_text, values)))
    return tuple(found)


def _entry(item: tuple[str, object]) -> tuple[str, str | None]:
    """Return an entry with its value as text, None for a value that is not a scalar."""
    key, value = item
    if isinstance(value, str):
        return key, value
    return key, str(value).lower() if isinstance(value, bool | int | float) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
