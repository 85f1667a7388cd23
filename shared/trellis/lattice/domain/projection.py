"""The projection of an Application to the form of wadm: manifest, digest, and ignored fields.

Pure. In: a manifest of either side. Out: equal projections for manifests that are equivalent in wadm. Called by
services that manage applications. Invariants: a projection is its own projection; a manifest returned by wadm has the
digest of the sent one; every ignored field is listed in ``ignored``, except annotations of deployment tools and
equivalent notations. Source: the manifests of wadm 0.21: former names (``actor``, ``replicas``, ``source_config``, a
target that is only a name) are read and the present ones written, empty values are omitted, unknown fields are ignored
or rejected.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.oam import ManifestError, rows, table, word

Manifest = Mapping[str, Any]

VERSION: Final = "version"
"""Annotation with the version of a manifest; it is not part of the content of the version."""
_TOOLS: Final = re.compile(
    r"(kubectl\.kubernetes\.io|(.*\.)?helm\.sh|(.*\.)?argoproj\.io|(.*\.)?fluxcd\.io|trellis\.dev)/"
)
_SERVICE_ANNOTATIONS: Final = (names.ANNOTATION_SERVICE, names.SERVICE_LABEL_PREFIX, names.SERVICE_ANNOTATION_PREFIX)
"""Annotations of Trellis for authors of applications: service_reflector reads them from wadm."""
_HELM_LABEL: Final = ("app.kubernetes.io/managed-by", "Helm")
_PART: Final = r"[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LABEL: Final = re.compile(rf"({_PART}(\.{_PART})*/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
"""Keys that wadm accepts; Kubernetes also accepts prefixes with a part that begins with a digit."""
_ACTED_ON: Final = ("spreadscaler", "daemonscaler", "link")
"""Traits that wadm evaluates, and rejects in another form; it stores traits of other types unchanged."""
_COMPONENT: Final = {"component": "component", "actor": "component", "capability": "capability"}


@dataclass(frozen=True, slots=True)
class Projection:
    """A manifest for wadm, without a version. ``ignored``: paths of omitted fields, which wadm does not accept.

    ``version``: from its annotation, "" if it is missing.
    """

    manifest: Manifest
    version: str
    ignored: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 in hex digits over all but the name, independent of the order of components and fields."""
        spec = self.manifest["spec"]
        ordered = spec | {"components": sorted(spec["components"], key=lambda item: str(item["name"]))}
        metadata = {key: value for key, value in self.manifest["metadata"].items() if key != "name"}
        canonical = json.dumps([metadata, ordered], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    def under(self, version: str) -> Manifest:
        """Return the manifest that stores this projection as a version."""
        metadata = self.manifest["metadata"]
        annotations = {**metadata["annotations"], VERSION: version}
        return {**self.manifest, "metadata": {**metadata, "annotations": annotations}}


def project(manifest: object, name: str = "") -> Projection:
    """Return the projection of a manifest of either side; ``name`` replaces the name of the manifest.

    Raises:
        ManifestError: the manifest is invalid; the message names the field.
    """
    if not isinstance(manifest, dict):
        raise ManifestError("the manifest is not a map")
    ignored: list[str] = []
    metadata = table(manifest, "metadata", "manifest")
    annotations = _marks(table(metadata, "annotations", "metadata"), "metadata.annotations", ignored)
    labels = _marks(table(metadata, "labels", "metadata"), "metadata.labels", ignored)
    version = annotations.pop(VERSION, "")
    spec = _Reader(ignored).spec(table(manifest, "spec", "manifest"))
    return Projection(
        {
            "apiVersion": "core.oam.dev/v1beta1",
            "kind": "Application",
            "metadata": {"name": name or word(metadata, "name", "metadata", required=True), "annotations": annotations}
            | ({"labels": labels} if labels else {}),
            "spec": spec,
        },
        version,
        tuple(ignored),
    )


def _marks(found: Mapping[str, Any], place: str, ignored: list[str]) -> dict[str, str]:
    """Return annotations or labels without those of tools, and without those that wadm does not accept."""
    kept: dict[str, str] = {}
    for key, value in found.items():
        if not isinstance(value, str):
            raise ManifestError(f"`{place}.{key}` is not a string")
        if (_TOOLS.match(key) and not key.startswith(_SERVICE_ANNOTATIONS)) or (key, value) == _HELM_LABEL:
            continue
        if _LABEL.fullmatch(key):
            kept[key] = value
        else:
            ignored.append(f"{place}.{key}")
    return kept


class _Reader:
    """Reads the parts of a spec; records the paths of fields that wadm does not support."""

    def __init__(self, ignored: list[str]) -> None:
        self._ignored = ignored

    def spec(self, spec: Manifest) -> dict[str, Any]:
        """Return a spec."""
        self._known(spec, "spec", "components", "policies")
        components = [
            self._component(item, f"spec.components[{at}]") for at, item in enumerate(rows(spec, "components", "spec"))
        ]
        policies = [
            self._policy(item, f"spec.policies[{at}]") for at, item in enumerate(rows(spec, "policies", "spec"))
        ]
        return {"components": components} | _filled(policies=policies)

    def _component(self, manifest: Manifest, place: str) -> dict[str, Any]:
        self._known(manifest, place, "name", "type", "properties", "traits")
        kind = word(manifest, "type", place, required=True)
        if kind not in _COMPONENT:
            raise ManifestError(f"`{place}.type` is {kind!r}, which is neither component nor capability")
        inner = f"{place}.properties"
        properties = table(manifest, "properties", place)
        self._known(properties, inner, "image", "application", "id", "config", "secrets")
        shared = table(properties, "application", inner)
        self._known(shared, f"{inner}.application", "name", "component")
        traits = [
            self._trait(trait, f"{place}.traits[{at}]") for at, trait in enumerate(rows(manifest, "traits", place))
        ]
        known_properties = _given(properties, inner, "image", "id") | _filled(
            application={key: shared[key] for key in ("name", "component") if key in shared},
            config=self._configs(properties, "config", inner),
            secrets=self._secrets(properties, inner),
        )
        return {
            "name": word(manifest, "name", place),
            "type": _COMPONENT[kind],
            "properties": known_properties,
        } | _filled(traits=traits)

    def _policy(self, manifest: Manifest, place: str) -> dict[str, Any]:
        self._known(manifest, place, "name", "type", "properties")
        kept = {"name": word(manifest, "name", place), "type": word(manifest, "type", place)}
        return kept | {"properties": dict(table(manifest, "properties", place))}

    def _trait(self, trait: Manifest, place: str) -> dict[str, Any]:
        self._known(trait, place, "type", "properties")
        inner, kind = f"{place}.properties", word(trait, "type", place)
        if kind in _ACTED_ON:
            properties: object = self.properties(table(trait, "properties", place), inner)
        else:
            properties = self._in_any_form(trait.get("properties"), inner)
        return {"type": kind, "properties": properties}

    def properties(self, given: Manifest, place: str) -> dict[str, Any]:
        """Return the properties of a trait: wadm distinguishes links and scalers by their fields, not by the type."""
        if _is_link(given):
            return self._link(given, place)
        if "instances" in given or "replicas" in given:
            return self._scaler(given, place)
        return dict(given)

    def _in_any_form(self, given: object, place: str) -> object:
        """Return the properties of a trait that wadm does not evaluate: a scaler with more fields is unchanged."""
        if not isinstance(given, dict):
            return given
        ignored: list[str] = []
        try:
            read = _Reader(ignored).properties(given, place)
        except ManifestError:
            return given
        if ignored and not _is_link(given):
            return given
        self._ignored += ignored
        return read

    def _link(self, link: Manifest, place: str) -> dict[str, Any]:
        # The former fields count only if the present ones are missing.
        former = ["source_config"] if link.get("source") is None else []
        former += ["target_config"] if isinstance(link.get("target"), str) else []
        self._known(link, place, "namespace", "package", "interfaces", "name", "source", "target", *former)
        source = self._end(table(link, "source", place), f"{place}.source")
        if link.get("source") is None:
            source = _filled(config=self._configs(link, "source_config", place))
        if isinstance(link.get("target"), str):
            target = {"name": link["target"]} | _filled(config=self._configs(link, "target_config", place))
        else:
            given = table(link, "target", place)
            target = {"name": word(given, "name", f"{place}.target")} | self._end(given, f"{place}.target", "name")
        plain = {key: link[key] for key in ("namespace", "package", "interfaces")}
        return plain | {"target": target} | _given(link, place, "name") | _filled(source=source)

    def _end(self, end: Manifest, place: str, *besides: str) -> dict[str, Any]:
        self._known(end, place, "config", "secrets", *besides)
        return _filled(config=self._configs(end, "config", place), secrets=self._secrets(end, place))

    def _scaler(self, scaler: Manifest, place: str) -> dict[str, Any]:
        count = "instances" if "instances" in scaler else "replicas"
        self._known(scaler, place, count, "spread")
        spreads = []
        for at, spread in enumerate(rows(scaler, "spread", place)):
            inner = f"{place}.spread[{at}]"
            self._known(spread, inner, "name", "requirements", "weight")
            # wadm omits empty requirements, and rejects a spread without them.
            kept = {"name": word(spread, "name", inner), "requirements": dict(table(spread, "requirements", inner))}
            spreads.append(kept | ({} if spread.get("weight") is None else {"weight": spread["weight"]}))
        return {"instances": scaler[count]} | _filled(spread=spreads)

    def _configs(self, holder: Manifest, key: str, place: str) -> list[dict[str, Any]]:
        found = []
        for at, item in enumerate(rows(holder, key, place)):
            inner = f"{place}.{key}[{at}]"
            self._known(item, inner, "name", "properties")
            # Empty properties are an empty configuration; missing properties refer to one of the lattice.
            content = {} if item.get("properties") is None else {"properties": dict(table(item, "properties", inner))}
            found.append({"name": word(item, "name", inner)} | content)
        return found

    def _secrets(self, holder: Manifest, place: str) -> list[dict[str, Any]]:
        found = []
        for at, item in enumerate(rows(holder, "secrets", place)):
            inner = f"{place}.secrets[{at}]"
            self._known(item, inner, "name", "properties")
            source = table(item, "properties", inner)
            self._known(source, f"{inner}.properties", "policy", "key", "field", "version")
            kept = {key: word(source, key, f"{inner}.properties") for key in ("policy", "key")}
            kept |= {key: source[key] for key in ("field", "version") if source.get(key) is not None}
            found.append({"name": word(item, "name", inner), "properties": kept})
        return found

    def _known(self, holder: Manifest, place: str, *known: str) -> None:
        self._ignored += [f"{place}.{key}" for key in holder if key not in known]


def _filled(**fields: object) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}


def _given(holder: Manifest, place: str, *keys: str) -> dict[str, Any]:
    """Return the existing strings: wadm distinguishes an empty string from a missing one."""
    return {key: word(holder, key, place) for key in keys if holder.get(key) is not None}


def _is_link(properties: Manifest) -> bool:
    return all(key in properties for key in ("namespace", "package", "interfaces"))
