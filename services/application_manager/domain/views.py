"""Views of Applications in the informer: the fields that show a change, without the manifest, and their lattice.

Pure. In: raw objects, host groups. Out: views; a lattice ID. Called by the informer, ``cache`` and ``gather``. Rule: an
object may name only lattices of host groups of its own namespace. Invariant: a thousand views are small: they have the
digest of the manifest, and the status as JSON; a caller that needs the manifest reads the object.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from application_manager.domain.sides import Base, Object, Side, Win
from trellis import names
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.oam import ManifestError
from trellis.lattice.domain.projection import VERSION, Projection, project

Manifest = Mapping[str, Any]

_WADM_NAME: Final = re.compile(r"[-A-Za-z0-9_]{1,3000}")
"""wadm accepts letters of any script, but names are keys of its bucket, which are ASCII. NATS closes the connection for
lines that are too long: 4,096 bytes, with wadm's prefix and the lattice's name."""
_NAME_SHOWN: Final = 64
_WRITTEN: Final = re.compile(r"([0-9a-f]{64})/([0-9]{1,18})")


class Key(NamedTuple):
    """An application of a lattice; an object without lattice has ``lattice_id`` "" and ``name`` ``namespace/name``."""

    lattice_id: str
    name: str

    def __str__(self) -> str:
        """Return the key in readable form."""
        return f"{lattice_name(self.lattice_id)}/{self.name}" if self.lattice_id else self.name


@dataclass(frozen=True, slots=True)
class ApplicationView:
    """An Application. ``application``: its name in wadm; ``lattice``: from its label; ``shown``: from its status.

    ``problem``: why its manifest cannot be read, "" if it can; ``ignored``: fields that wadm does not support;
    ``status``: the status of the object, as JSON; ``phase``: from the status, "" if there is none.
    ``version_of_wadm``: its annotation ``version`` belongs to a manifest of wadm that was replaced since.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: str
    application: str
    lattice: str
    shown: str
    finalizers: tuple[str, ...]
    object: Object
    ignored: tuple[str, ...] = ()
    problem: str = ""
    status: str = "{}"
    phase: str = ""
    version_of_wadm: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def status_fields(self) -> dict[str, Any]:
        """Return the status."""
        found: dict[str, Any] = json.loads(self.status)
        return found


def application_name(metadata: Manifest) -> str:
    """Return the name of an object in wadm."""
    annotations = metadata.get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_APP_NAME) or metadata["name"])


def read_manifest(item: Manifest) -> Projection:
    """Return the part of an object that reaches wadm.

    Raises:
        ManifestError: the manifest is invalid, or wadm does not accept the name.
    """
    name = application_name(item["metadata"])
    if not _WADM_NAME.fullmatch(name):
        shown = repr(name) if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]!r}…, of {len(name)} characters"
        raise ManifestError(f"wadm takes no application called {shown}: only A-Z, a-z, 0-9, - and _, at most 3,000")
    return project(item, name)


def view_application(item: Manifest) -> ApplicationView:
    """Return the view of an Application."""
    metadata, status = item["metadata"], item.get("status") or {}
    annotations = metadata.get("annotations") or {}
    problem, digest, version = "", "", ""
    ignored: tuple[str, ...] = ()
    try:
        read = read_manifest(item)
    except ManifestError as error:
        problem = str(error)
    else:
        digest, version, ignored = read.digest, read.version, read.ignored
    written = _written(annotations.get(names.ANNOTATION_LAST_SYNCED, ""))
    of_wadm = version != "" and written is not None and written[0] != digest and _only_ours(metadata)
    finalizers = tuple(metadata.get("finalizers") or ())
    found = Object(
        digest=sys.intern(digest),
        version="" if of_wadm else version,
        undeploy=annotations.get(names.ANNOTATION_UNDEPLOY) == names.TRUE,
        others=managed_by_others(metadata.get("managedFields") or ()),
        finalizer=names.FINALIZER_APPLICATIONS in finalizers,
        deleting=bool(metadata.get("deletionTimestamp")),
        base=read_base(status),
        wins=read_wins(status),
        written=written,
    )
    return ApplicationView(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata.get("generation") or 0,
        created=str(metadata.get("creationTimestamp") or ""),
        application=application_name(metadata),
        lattice=_shared((metadata.get("labels") or {}).get(names.LABEL_LATTICE)),
        shown=_shared(status.get("lattice")),
        finalizers=finalizers,
        object=found,
        ignored=ignored,
        problem=problem,
        version_of_wadm=of_wadm,
        phase=_shared(status.get("phase")),
        status=json.dumps(status, separators=(",", ":"), sort_keys=True),
    )


def managed_by_others(managed: Iterable[Manifest]) -> bool:
    """Return whether another manager manages a field of ``spec``. Source: ``metadata.managedFields`` of Kubernetes."""
    return any(
        item.get("manager") != names.FIELD_MANAGER_WADM and not item.get("subresource")
        for item in managed
        if "f:spec" in (item.get("fieldsV1") or {})
    )


def _only_ours(metadata: Manifest) -> bool:
    """Return whether Trellis alone manages the annotation ``version``."""
    managers = {
        managed_field.get("manager")
        for managed_field in metadata.get("managedFields") or ()
        if f"f:{VERSION}" in (managed_field.get("fieldsV1") or {}).get("f:metadata", {}).get("f:annotations", {})
    }
    return managers == {names.FIELD_MANAGER_WADM}


def _shared(value: object) -> str:
    """Return the text of a field that many objects have alike, "" for none; equal texts are in memory once."""
    return sys.intern(str(value or ""))


def read_base(status: Manifest) -> Base | None:
    """Return the last common state of both sides, None if it was never recorded, or cannot be read."""
    synced = status.get("synced")
    if not isinstance(synced, dict) or not all(
        isinstance(synced.get(key), str) for key in ("specDigest", "wadmVersion")
    ):
        return None
    return Base(
        digest=sys.intern(synced["specDigest"]),
        version=sys.intern(synced["wadmVersion"]),
        deployed=bool(synced.get("deployed")),
        newest=_shared(synced.get("newestVersion")),
        undeploy=bool(synced.get("undeploy")),
        serial=synced.get("serial") or 0,
        bucket=_shared(synced.get("bucket")),
        revision=synced.get("kvRevision") or 0,
    )


def read_wins(status: Manifest) -> tuple[Win, ...]:
    """Return the last changes of either side, the oldest first; unreadable ones are skipped."""
    wins = status.get("wins")
    return tuple(filter(None, map(_win, wins))) if isinstance(wins, list) else ()


def _win(item: object) -> Win | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if isinstance(item, dict):
            return Win(Side(item["side"]), datetime.fromisoformat(item["time"]).timestamp())
    return None


def received_annotation(digest: str, serial: int) -> str:
    """Return the annotation value of a manifest that an object received from wadm."""
    return f"{digest}/{serial}"


def _written(annotation: str) -> tuple[str, int] | None:
    """Return digest and serial in the annotation value; None if it is invalid."""
    found = _WRITTEN.fullmatch(annotation)
    return (found[1], int(found[2])) if found else None


def lattice_of(groups: Iterable[GroupView], label: str, shown: str) -> str:
    """Return the ID of an object's lattice, "" if it has none.

    Args:
        groups: host groups of the object's namespace.
        label: the lattice that the object names, "" if it names none.
        shown: the last lattice of the object, "" if it had none; another group does not move it.
    """
    senior = sorted((group for group in groups if group.lattice), key=lambda group: (group.created, group.key))
    lattice_ids = list(dict.fromkeys(group.lattice for group in senior))
    if wanted := label or shown:
        return next((lattice_id for lattice_id in lattice_ids if lattice_name(lattice_id) == wanted), "")
    return lattice_ids[0] if len(lattice_ids) == 1 else ""


def no_lattice_message(groups: Iterable[GroupView], label: str, shown: str) -> str:
    """Return why an object has no lattice, with the remedy, as a message for users."""
    known = sorted({lattice_name(group.lattice) for group in groups if group.lattice})
    wanted = label or shown
    if not known:
        of = f" of lattice {wanted}" if wanted else ""
        return f"there is no host group{of} in this namespace: create a WasmCloudHostConfig"
    if not wanted:
        return f"its namespace has hosts of {', '.join(known)}: select the lattice with the label trellis.dev/lattice"
    return f"no host group in this namespace is of lattice {wanted}: it has {', '.join(known)}"


def home_of(groups: Iterable[GroupView]) -> str:
    """Return the namespace for new objects of the lattice of these host groups, "" if there are no groups.

    It is that of the group that declares it, else of the oldest group; existing objects stay when it changes.
    """
    senior = sorted(groups, key=lambda group: (not group.home, group.created, group.key))
    return senior[0].namespace if senior else ""
