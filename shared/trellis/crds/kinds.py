"""The one table of our kinds, and the definition that is made of each.

Pure. In: the models. Out: CustomResourceDefinitions. Called by ``generate``, the command line and tests.
Invariant: names, scope and version of a kind we take over are its first owner's: objects stay where they are.
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
    """A column of ``kubectl get``; ``wide`` ones show with ``-o wide``."""

    name: str
    type: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Where ``kubectl scale`` and autoscalers find the number of replicas, and the selector of the pods."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One row: what the API server needs to know of a kind besides its fields.

    ``defaults_and_nulls``: its first owner's definition had defaults, and fields that may be null. ``category``: what
    ``kubectl get`` lists it under.
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
        """Name of the definition: ``<plural>.<group>``."""
        return f"{self.plural}.{self.group}"


def _columns(*own: Column) -> tuple[Column, ...]:
    """Return a kind's columns: its health before its own, and the message that explains it with ``-o wide``."""
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
"""Those whose definitions belong together: nobody else defines them, or objects of the former owner stay valid."""

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
"""By itself: KubeVela defines a kind of the same name, which must not be overwritten along with the others."""

BY_DIRECTORY: Final[dict[str, tuple[Kind, ...]]] = {"": KINDS, "applications": (APPLICATIONS,)}
"""By directory below ``deploy/crds``. ``kubectl apply -f`` reads no directory inside the one it is given."""


def make_definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind, with the status and scale subresources where it has them."""
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
