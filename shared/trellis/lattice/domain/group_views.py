"""Views of host groups for services that follow lattices.

Pure: raw objects in, views out. Called by the watches of services. Invariant: no view contains a credential, only the
names of Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A host group. ``spec`` is None if it cannot be read; ``lattice``: which lattice it is on, as a mark.

    ``home``: it says that its namespace is where its lattice's applications are shown.
    """

    namespace: str
    name: str
    uid: str
    created: str
    deleting: bool
    lattice: str = ""
    spec: WasmCloudHostConfigSpec | None = None
    home: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def view_group(manifest: Manifest) -> GroupView:
    """Project a group; its status is nothing to us."""
    metadata = manifest["metadata"]
    try:
        spec = WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {})
    except ValidationError:
        spec = None
    namespace = metadata["namespace"]
    return GroupView(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        created=str(metadata.get("creationTimestamp") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        lattice="" if spec is None else lattice_mark(spec, namespace),
        spec=spec,
        home=(metadata.get("annotations") or {}).get(names.ANNOTATION_HOME) == names.TRUE,
    )


def lattice_mark(spec: WasmCloudHostConfigSpec, namespace: str) -> str:
    """Return what tells a group's lattice from all others, ``<name>/<digest>``: whose NATS, by which credentials.

    Groups that name a Secret are on one lattice only within their namespace: another namespace's Secret of that name
    may be for another account, which has lattices of its own.
    """
    tls = (spec.leaf_tls.secret_name if spec.leaf_tls else None) or ""
    secrets = [spec.secret_name or "", tls]
    place = namespace if any(secrets) else ""
    parts = (spec.nats_address, str(spec.nats_client_port), spec.control_topic_prefix or "", place, *secrets)
    return f"{spec.lattice}/{names.short_hash(spec.lattice, *parts)}"


def lattice_name(mark: str) -> str:
    """Return the name of the lattice that a mark is of, which its group and its applications give."""
    return mark.partition("/")[0]
