"""The one table of our kinds, and the definition that is made of each.

Pure. In: the models. Out: CustomResourceDefinitions. Called by ``generate``, the command line and tests.
Invariant: names, scope and version of a kind we take over are its first owner's: objects stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from trellis.crds.schema import structural
from trellis.crds.shim import Shim


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; ``wide`` ones show with ``-o wide``."""

    name: str
    type: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """One row: what the API server needs to know of a kind besides its fields."""

    model: type[BaseModel]
    group: str
    version: str
    plural: str
    scope: str
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the definition: ``<plural>.<group>``."""
        return f"{self.plural}.{self.group}"


_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")

KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        Shim,
        group="runtime.spinkube.dev",
        version="v1alpha1",
        plural="shims",
        scope="Cluster",
        columns=(
            Column("RuntimeClass", "string", ".spec.runtimeClass.name"),
            Column("Ready", "integer", ".status.nodesReady"),
            Column("Nodes", "integer", ".status.nodes"),
            Column("Updated", "integer", ".status.nodesUpdated", wide=True),
            Column("Failed", "integer", ".status.nodesFailed", wide=True),
            Column("Available", "string", ".status.conditions[?(@.type=='Available')].status"),
            Column("Message", "string", ".status.conditions[?(@.type=='Progressing')].message", wide=True),
            _AGE,
        ),
    ),
)


def make_definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind, with the status subresource."""
    schema = structural(kind.model)
    # Every object has these; the API server validates metadata itself.
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    } | schema["properties"]
    names = {
        "categories": ["trellis"],
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
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": 1} if column.wide else {})
