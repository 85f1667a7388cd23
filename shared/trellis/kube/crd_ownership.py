"""Determines the owner of the CRD of a kind of Trellis, and whether the API server serves it.

Pure. In: the CRD and the APIService of a kind, as in the API server. Out: its state, and the next step. Called by
``trellis crds`` and ``trellis migrate``. Invariant: the CRD of another owner is never treated as one of Trellis; the
CRD of KubeVela, which has the same name, is never taken over.

Source: the chart of KubeVela (``velaapp`` among the short names, ``spec.workflow``), wasmcloud-operator 0.5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.crds.kinds import Kind, make_definition
from trellis.provisioning.other_controllers import COMMANDS, NAMES, Peer

Manifest = Mapping[str, Any]


class Place(StrEnum):
    """State of the CRD of a kind."""

    MISSING = "Missing"
    CURRENT = "Current"
    OUTDATED = "Outdated"
    FORMER = "Former"
    UNKNOWN = "UnknownOwner"
    KUBEVELA = "KubeVela"
    OTHER_VERSION = "OtherVersion"
    HIDDEN = "Hidden"


REFUSED: Final = frozenset({Place.UNKNOWN, Place.FORMER, Place.KUBEVELA, Place.OTHER_VERSION, Place.HIDDEN})
"""States in which nothing is applied, except with ``--adopt`` if ``ADOPTABLE``."""
ADOPTABLE: Final = frozenset({Place.UNKNOWN, Place.FORMER})
"""States in which a user can adopt the CRD."""

_OURS: Final = ("app.kubernetes.io/part-of", "trellis")
_FORMER_OWNERS: Final[Mapping[str, Peer]] = {
    "wasmcloudhostconfigs.k8s.wasmcloud.dev": Peer.WASMCLOUD_OPERATOR,
    "shims.runtime.spinkube.dev": Peer.RCM,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """State of one CRD. ``message``: explanation and next step, "" if there is none."""

    name: str
    place: Place
    message: str = ""

    def document(self) -> dict[str, str]:
        """Return the state as a JSON document."""
        return {"name": self.name, "state": self.place.value, "message": self.message}


def standing_of(kind: Kind, definition: Manifest | None, registration: Manifest | None) -> Standing:
    """Return the state of the CRD of a kind of Trellis.

    ``definition``: the CustomResourceDefinition with its name, None if there is none; ``registration``: the APIService
    of its group and version, None if there is none.
    """
    hidden = _hidden(kind, registration)
    if hidden:
        return Standing(kind.name, Place.HIDDEN, hidden)
    if definition is None:
        return Standing(
            kind.name, Place.MISSING, f"the CRD {kind.name} does not exist: `trellis crds apply {kind.plural}`"
        )
    if _covers(make_definition(kind)["spec"], definition.get("spec") or {}):
        return Standing(kind.name, Place.CURRENT, _unserved(definition))
    labels = definition["metadata"].get("labels") or {}
    if labels.get(_OURS[0]) == _OURS[1]:
        return Standing(
            kind.name, Place.OUTDATED, f"another version of Trellis applied it: `trellis crds apply {kind.plural}`"
        )
    if _is_kubevelas(definition):
        return Standing(kind.name, Place.KUBEVELA, _KUBEVELA.format(name=kind.name))
    return _foreign(kind, definition)


_KUBEVELA: Final = (
    "KubeVela owns the CRD {name}, and a cluster cannot have two CRDs of this name. Nothing is changed. Keep KubeVela "
    "and run Trellis without application_manager, or remove KubeVela first: `kubectl delete customresourcedefinition "
    "{name}` deletes all its applications"
)


def _hidden(kind: Kind, registration: Manifest | None) -> str:
    """Return the reason if another API server serves the group and version instead of the CRD, "" otherwise."""
    service = ((registration or {}).get("spec") or {}).get("service") or {}
    if not service:
        return ""  # there is no APIService, or it is local
    place = f"Service {service.get('namespace')}/{service.get('name')}"
    name = f"{kind.version}.{kind.group}"
    if service.get("name") in NAMES[Peer.WASMCLOUD_OPERATOR]:
        return (
            f"wasmcloud-operator serves it (APIService {name}, {place}), which hides the CRD: "
            f"`{COMMANDS[Peer.WASMCLOUD_OPERATOR]}` removes the APIService and changes no application"
        )
    return (
        f"another API server serves it (APIService {name}, {place}), which hides the CRD: find its owner, and if it is "
        f"no longer needed, remove it with `kubectl delete apiservice {name}`"
    )


def _is_kubevelas(definition: Manifest) -> bool:
    spec = definition.get("spec") or {}
    if "velaapp" in ((spec.get("names") or {}).get("shortNames") or ()):
        return True
    if spec.get("group") != "core.oam.dev":
        return False
    annotations = definition["metadata"].get("annotations") or {}
    if any("vela" in str(value) for value in annotations.values() if len(str(value)) < 256):
        return True
    return any("workflow" in _fields(version) for version in spec.get("versions") or ())


def _fields(version: Manifest) -> Mapping[str, Any]:
    """Return the fields of ``spec`` in a version of a CRD."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    spec = (schema.get("properties") or {}).get("spec") or {}
    fields: Mapping[str, Any] = spec.get("properties") or {}
    return fields


def _foreign(kind: Kind, definition: Manifest) -> Standing:
    stored = (definition.get("status") or {}).get("storedVersions") or ()
    others = [item for item in stored if item != kind.version]
    former = _FORMER_OWNERS.get(kind.name)
    if others:
        reason = f"its objects are stored in version {', '.join(others)}, which Trellis does not support"
        return Standing(
            kind.name, Place.OTHER_VERSION, f"another owner applied {kind.name}, and {reason}: migrate them first"
        )
    if former is not None:
        message = (
            f"{former.value} applied it; its objects do not change when Trellis adopts it: "
            f"`trellis crds apply {kind.plural} --adopt`"
        )
        return Standing(kind.name, Place.FORMER, message)
    message = (
        f"an unknown owner applied {kind.name}: check it with `kubectl get customresourcedefinition {kind.name} -o "
        f"yaml`; if it is not needed, `trellis crds apply {kind.plural} --adopt`"
    )
    return Standing(kind.name, Place.UNKNOWN, message)


def _unserved(definition: Manifest) -> str:
    """Return why the API server does not serve a CRD, "" if it does."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    for condition in conditions:
        if condition.get("type") in {"Established", "NamesAccepted"} and condition.get("status") == "False":
            return f"the API server does not serve it: {condition.get('reason')}: {condition.get('message')}"
    if not any(condition.get("type") == "Established" for condition in conditions):
        return "the API server does not serve it yet"
    return ""


def _covers(wanted: Any, found: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether ``found`` equals ``wanted``, except for defaults of the API server.

    Fields of schemas are compared completely.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return False
        both = all(name in found and _covers(value, found[name]) for name, value in wanted.items())
        schema = "openAPIV3Schema" in wanted or "properties" in wanted or "items" in wanted
        return both and (not schema or set(wanted.get("properties", ())) == set(found.get("properties", ())))
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_covers(item, other) for item, other in zip(wanted, found, strict=True))
        )
    return bool(wanted == found)


def adopted(kind: Kind, definition: Manifest) -> dict[str, Any]:
    """Return the CRD of Trellis that replaces the given one, with its labels and annotations in addition."""
    made = make_definition(kind)
    former = definition["metadata"]
    metadata = {
        "name": kind.name,
        "uid": former["uid"],
        "resourceVersion": former["resourceVersion"],
        "labels": {**(former.get("labels") or {}), **made["metadata"]["labels"]},
    }
    if former.get("annotations"):
        metadata["annotations"] = dict(former["annotations"])
    return {**made, "metadata": metadata}
