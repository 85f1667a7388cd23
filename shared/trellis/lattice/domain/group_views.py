"""Views of host groups for services that follow lattices.

Pure: raw objects in, views out. Called by the watches of services. Invariant: no view contains a credential, only the
names of Secrets.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from trellis import names
from trellis.crds.host_config import WasmCloudHostConfigSpec

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LatticeSpec:
    """The fields of a host group's spec that select its lattice. ``tls_secret``: of ``leafTls``; "": unset.

    The model of the whole spec would need 2 kB in each service that follows lattices.
    """

    lattice: str
    nats_address: str
    nats_client_port: int
    control_topic_prefix: str = ""
    secret_name: str = ""
    tls_secret: str = ""

    @classmethod
    def of(cls, spec: WasmCloudHostConfigSpec) -> Self:
        """Return these fields of a spec."""
        return cls(
            lattice=sys.intern(spec.lattice),
            nats_address=sys.intern(spec.nats_address),
            nats_client_port=spec.nats_client_port,
            control_topic_prefix=spec.control_topic_prefix or "",
            secret_name=spec.secret_name or "",
            tls_secret=(spec.leaf_tls.secret_name if spec.leaf_tls else None) or "",
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of its Secrets."""
        return tuple(dict.fromkeys(name for name in (self.secret_name, self.tls_secret) if name))


@dataclass(frozen=True, slots=True)
class GroupView:
    """A host group. ``spec`` is None if it is invalid; ``lattice``: its lattice ID.

    ``generation``: each change of its spec is a change of the view, as conditions name the generation.
    ``home``: its annotation selects its namespace for Applications of its lattice that wash deployed.
    """

    namespace: str
    name: str
    uid: str
    created: str
    deleting: bool
    lattice: str = ""
    spec: LatticeSpec | None = None
    home: bool = False
    generation: int = 0

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def view_group(manifest: Manifest) -> GroupView:
    """Return the view of a host group, without its status."""
    metadata = manifest["metadata"]
    try:
        spec = LatticeSpec.of(WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {}))
    except ValidationError:
        spec = None
    namespace = metadata["namespace"]
    return GroupView(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        created=str(metadata.get("creationTimestamp") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        lattice="" if spec is None else lattice_id_of(spec, namespace),
        spec=spec,
        home=(metadata.get("annotations") or {}).get(names.ANNOTATION_HOME) == names.TRUE,
        generation=metadata.get("generation") or 0,
    )


def lattice_id_of(spec: LatticeSpec, namespace: str) -> str:
    """Return the lattice ID of a host group, ``<name>/<digest>``: the digest is of the NATS address and credentials.

    Host groups with a Secret share a lattice only within their namespace: a Secret of the same name in another
    namespace may be for another account, with separate lattices.
    """
    secrets = (spec.secret_name, spec.tls_secret)
    place = namespace if any(secrets) else ""
    parts = (spec.nats_address, str(spec.nats_client_port), spec.control_topic_prefix, place, *secrets)
    return f"{spec.lattice}/{names.short_hash(spec.lattice, *parts)}"


def lattice_name(lattice_id: str) -> str:
    """Return the name of the lattice in a lattice ID, as in its host groups and applications."""
    return lattice_id.partition("/")[0]
