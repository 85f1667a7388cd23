"""The table of the kinds of Trellis, and the CRD of each.

Pure. In: the models. Out: CustomResourceDefinitions. Called by ``generate``, the command line and tests.
Invariant: names, scope and version of an adopted kind are those of its first owner: stored objects stay valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from trellis.crds.application import Application
from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.schema import structural
from trellis.crds.secret_grants import SecretGrant
from trellis.crds.shim import Shim
from trellis.crds.wasm_controllers import WasmController


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; ``wide`` columns are shown with ``-o wide``."""

    name: str
    type: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths of the scale subresource: desired and current replicas, and the selector of the pods."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One row: the properties of a kind besides its fields.

    ``defaults_and_nulls``: the CRD of the first owner had defaults and nullable fields. ``category``: its category in
    ``kubectl get``.
    """

    model: type[BaseModel]
    group: str
    version: str
    plural: str
    scope: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    scale: Scale | None = None
    defaults_and_nulls: bool = False
    category: str = "trellis"

    @property
    def name(self) -> str:
        """Name of the CRD: ``<plural>.<group>``."""
        return f"{self.plural}.{self.group}"


def _columns(*own: Column) -> tuple[Column, ...]:
    """Return the columns of a kind: health, its own columns, and with ``-o wide`` the message of Ready."""
    ready = ".status.conditions[?(@.type=='Ready')]"
    return (
        Column("Ready", "string", f"{ready}.status"),
        Column("Reason", "string", f"{ready}.reason"),
        *own,
        Column("Message", "string", f"{ready}.message", wide=True),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )


KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        Shim,
        group="runtime.spinkube.dev",
        version="v1alpha1",
        plural="shims",
        scope="Cluster",
        columns=_columns(
            Column("Nodes", "integer", ".status.nodes"),
            Column("Nodes-Ready", "integer", ".status.nodesReady"),
            Column("Nodes-Updated", "integer", ".status.nodesUpdated", wide=True),
            Column("Nodes-Failed", "integer", ".status.nodesFailed", wide=True),
            Column("RuntimeClass", "string", ".spec.runtimeClass.name"),
            Column("Digest", "string", ".status.digest", wide=True),
        ),
    ),
    Kind(
        WasmCloudHostConfig,
        group="k8s.wasmcloud.dev",
        version="v1alpha1",
        plural="wasmcloudhostconfigs",
        scope="Namespaced",
        columns=_columns(
            Column("Hosts", "integer", ".status.desiredReplicas"),
            Column("Hosts-Ready", "integer", ".status.readyReplicas"),
            Column("Hosts-Updated", "integer", ".status.updatedReplicas", wide=True),
            Column("Lattice", "string", ".spec.lattice"),
            Column("Version", "string", ".spec.version"),
            Column("Applications", "integer", ".status.app_count"),
        ),
        short_names=("whc",),
        scale=Scale(".spec.hostReplicas", ".status.replicas", ".status.selector"),
        defaults_and_nulls=True,
    ),
    Kind(
        SecretGrant,
        group="trellis.dev",
        version="v1alpha1",
        plural="secretgrants",
        scope="Namespaced",
        columns=_columns(
            Column("From", "string", ".spec.from[*].namespace"),
            Column("Accounts", "string", ".spec.serviceAccounts"),
            Column("Users", "string", ".spec.users", wide=True),
            Column("Issuers", "string", ".spec.entityIssuers", wide=True),
        ),
    ),
    Kind(
        WasmController,
        group="trellis.dev",
        version="v1alpha1",
        plural="wasmcontrollers",
        scope="Namespaced",
        columns=_columns(
            Column("State", "string", ".status.state"),
            Column("Wakes", "integer", ".status.wakes"),
            Column("Traps", "integer", ".status.traps"),
            Column("Module", "string", ".status.module.sha256", wide=True),
            Column("Account", "string", ".spec.serviceAccountName", wide=True),
        ),
        short_names=("wasmctl",),
    ),
)
"""Kinds that are installed together: only Trellis defines them, or objects of the former owner stay valid."""

APPLICATIONS: Final = Kind(
    Application,
    group="core.oam.dev",
    version="v1beta1",
    plural="applications",
    scope="Namespaced",
    columns=_columns(
        Column("Phase", "string", ".status.phase"),
        Column("Deployed", "string", ".status.deployedVersion"),
        Column("Lattice", "string", ".status.lattice", wide=True),
    ),
    category="oam",
)
"""Installed separately: KubeVela defines a kind of the same name, which must not be overwritten accidentally."""

BY_DIRECTORY: Final[dict[str, tuple[Kind, ...]]] = {"": KINDS, "applications": (APPLICATIONS,)}
"""Kinds by directory below ``deploy/crds``. ``kubectl apply -f`` does not read subdirectories."""


def make_definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind, with its status and scale subresources."""
    status: dict[str, Any] = {"status": {}} if "status" in kind.model.model_fields else {}
    schema = structural(kind.model, defaults_and_nulls=kind.defaults_and_nulls)
    # Every object has these; the API server validates metadata itself.
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    } | schema["properties"]
    names = {
        "categories": [kind.category],
        "kind": kind.model.__name__,
        "listKind": f"{kind.model.__name__}List",
        "plural": kind.plural,
        "singular": kind.model.__name__.lower(),
    } | ({"shortNames": list(kind.short_names)} if kind.short_names else {})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name, "labels": {"app.kubernetes.io/part-of": "trellis"}},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": kind.scope,
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": schema},
                    **_subresources(status | _scale(kind.scale)),
                }
            ],
        },
    }


def _subresources(found: dict[str, Any]) -> dict[str, Any]:
    return {"subresources": found} if found else {}


def _scale(scale: Scale | None) -> dict[str, Any]:
    if scale is None:
        return {}
    paths = {
        "specReplicasPath": scale.spec,
        "statusReplicasPath": scale.status,
        "labelSelectorPath": scale.selector,
    }
    return {"scale": paths}


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": 1} if column.wide else {})
