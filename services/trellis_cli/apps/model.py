"""The write of a rollback to a version of an application, and its preconditions.

Pure. In: the object, its versions, the manifest of one in wadm. Out: the version, a tool that manages the object, the
write. Called by ``apps.history``. Invariant: the object gets exactly the version in wadm, and keeps the labels and
annotations of tools; its annotation ``version`` names it, so that the existing version in wadm is deployed.
Source: field managers and labels of Argo CD, Flux and Helm; ``metadata.managedFields`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trellis import names
from trellis.kube.preconditions import only_if
from trellis.kube.resources import APPLICATIONS
from trellis.lattice.domain.projection import VERSION, Projection, project
from trellis.lattice.domain.reading import LatticeDataError
from trellis.read_model.tables.apps import KEPT, VersionRow, application_of

Manifest = Mapping[str, Any]

KUBECTL: Final = "kubectl"
_TOOLS: Final = (
    ("argocd.argoproj.io/", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/", "Flux"),
    ("helm.toolkit.fluxcd.io/", "Flux"),
    ("meta.helm.sh/", "Helm"),
)
"""Prefixes of labels and annotations."""
_MANAGERS: Final = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "flux": "Flux",
    "helm": "Helm",
}


class RollbackError(Exception):
    """There is no version to restore; the text has the reason and the available versions."""


def gitops_of(item: Manifest) -> str:
    """Return the tool that manages an object and would revert changes, "" if there is none."""
    metadata = item["metadata"]
    keys = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
    for prefix, tool in _TOOLS:
        if any(key.startswith(prefix) for key in keys):
            return tool
    for entry in _of_spec(metadata):
        if tool := _MANAGERS.get(str(entry.get("manager")).lower(), ""):
            return tool
    return ""


def target_of(rows: Sequence[VersionRow], to: str | None) -> str:
    """Return the version to restore: the named one, else the one before the version that the object shows.

    Raises:
        RollbackError: the version does not exist; the text lists the available versions.
    """
    have = [row.version for row in rows]
    if to is not None:
        if to not in have:
            raise RollbackError(f"version {to!r} not found in wadm; known versions: {', '.join(have) or 'none'}")
        return to
    real = [row for row in rows if not row.version.startswith(KEPT)]
    current = next((at for at, row in enumerate(real) if row.shown), None)
    if current is None:
        current = next((at for at, row in enumerate(real) if row.deployed), None)
    if not current:
        raise RollbackError(f"no previous version; use --to with one of: {', '.join(have)}")
    return real[current - 1].version


@dataclass(frozen=True, slots=True)
class Rollback:
    """One write. ``applied``: for server-side apply; ``ops``: the same as a JSON patch; ``apply``: selects one.

    ``changes``: the changes as text; empty if there are none. ``digest``: of the intended content of the object.
    """

    key: str
    application: str
    former: str
    to: str
    manager: str
    digest: str
    changes: tuple[str, ...]
    applied: dict[str, Any] = field(repr=False)
    ops: tuple[dict[str, Any], ...] = field(repr=False)
    undeployed: bool = False
    apply: bool = False

    def by_apply(self) -> Rollback:
        """Return the same write as server-side apply."""
        return replace(self, apply=True)

    def is_met_by(self, item: Manifest) -> bool:
        """Return whether an object already has the intended content."""
        try:
            found = project(item, self.application)
        except LatticeDataError:
            return False
        return (found.digest, found.version) == (self.digest, name_of(self.to))

    def document(self) -> dict[str, Any]:
        """Return the rollback for JSON."""
        namespace, _, name = self.key.partition("/")
        return {
            "namespace": namespace,
            "name": name,
            "from": self.former or None,
            "to": self.to,
            "changes": list(self.changes),
            "by": self.manager,
        }


def name_of(version: str) -> str:
    """Return the value of the annotation ``version``; "" for a kept override, which gets a version of its own."""
    return "" if version.startswith(KEPT) else version


def plan_rollback(item: Manifest, manifest: Manifest, version: str) -> Rollback:
    """Return the rollback of an object to the manifest of a version in wadm.

    Raises:
        RollbackError: one of both manifests is invalid.
    """
    metadata = item["metadata"]
    application = application_of(metadata)
    try:
        now, then = project(item, application), project(dict(manifest), application)
    except LatticeDataError as error:
        raise RollbackError(f"{metadata['namespace']}/{metadata['name']} cannot be rolled back: {error}") from None
    named = {VERSION: name_of(version)} if name_of(version) else {}
    wanted = {
        "annotations": _marks(metadata, now, then, "annotations") | named,
        "labels": _marks(metadata, now, then, "labels"),
    }
    manager = _manager(metadata)
    return Rollback(
        key=f"{metadata['namespace']}/{metadata['name']}",
        application=application,
        former=str(((item.get("status") or {}).get("synced") or {}).get("wadmVersion") or now.version),
        to=version,
        manager=manager,
        digest=then.digest,
        changes=tuple(_changes(now, then, version)),
        applied=_applied(metadata, then, wanted, manager),
        ops=_ops(metadata, then, wanted),
        undeployed=(metadata.get("annotations") or {}).get(names.ANNOTATION_UNDEPLOY) == names.TRUE,
    )


def _marks(metadata: Manifest, now: Projection, then: Projection, kind: str) -> dict[str, str]:
    """Return annotations or labels: those of the version, and those that are not visible in wadm."""
    own = now.manifest["metadata"].get(kind) or {}
    kept = {key: value for key, value in (metadata.get(kind) or {}).items() if key not in own and key != VERSION}
    return kept | dict(then.manifest["metadata"].get(kind) or {})


def _applied(
    metadata: Manifest, then: Projection, wanted: Mapping[str, dict[str, str]], manager: str
) -> dict[str, Any]:
    """Return the manifest for server-side apply, only with labels and annotations of the version or the manager."""
    owned = _owned(metadata, manager)
    marks = {
        kind: {
            key: value
            for key, value in wanted[kind].items()
            if key in owned[kind] or key in (then.manifest["metadata"].get(kind) or {}) or key == VERSION
        }
        for kind in ("annotations", "labels")
    }
    return {
        "apiVersion": APPLICATIONS.api_version,
        "kind": APPLICATIONS.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        | {kind: found for kind, found in marks.items() if found},
        "spec": then.manifest["spec"],
    }


def _ops(metadata: Manifest, then: Projection, wanted: Mapping[str, dict[str, str]]) -> tuple[dict[str, Any], ...]:
    marks = [
        {"op": "add", "path": f"/metadata/{kind}", "value": wanted[kind]}
        for kind in ("annotations", "labels")
        if wanted[kind] != (metadata.get(kind) or {})
    ]
    spec = {"op": "replace", "path": "/spec", "value": then.manifest["spec"]}
    return (*only_if(metadata["uid"], metadata["resourceVersion"]), *marks, spec)


def _of_spec(metadata: Manifest) -> list[Manifest]:
    """Return the managers of fields in ``spec`` except Trellis, the latest first."""
    found = [
        managed_field
        for managed_field in metadata.get("managedFields") or ()
        if "f:spec" in (managed_field.get("fieldsV1") or {})
        and not managed_field.get("subresource")
        and managed_field.get("manager") != names.FIELD_MANAGER_WADM
    ]
    return sorted(found, key=lambda item: str(item.get("time") or ""), reverse=True)


def _manager(metadata: Manifest) -> str:
    """Return the field manager of the user: the one of the last server-side apply, else kubectl."""
    applied = [item for item in _of_spec(metadata) if item.get("operation") == "Apply"]
    return str(applied[0]["manager"]) if applied else KUBECTL


def _owned(metadata: Manifest, manager: str) -> dict[str, set[str]]:
    """Return the annotations and labels that a manager applied: an apply that omits them removes them."""
    owned: dict[str, set[str]] = {"annotations": set(), "labels": set()}
    for managed_field in metadata.get("managedFields") or ():
        if (managed_field.get("manager"), managed_field.get("operation")) == (
            manager,
            "Apply",
        ) and not managed_field.get("subresource"):
            fields = (managed_field.get("fieldsV1") or {}).get("f:metadata") or {}
            for kind, keys in owned.items():
                keys |= {name.removeprefix("f:") for name in fields.get(f"f:{kind}") or {} if name != "."}
    return owned


def _changes(now: Projection, then: Projection, version: str) -> list[str]:
    """Return the changes, by component; empty if the object has the same content and names the version."""
    changes = []
    if now.digest != then.digest:
        here, there = _components(now), _components(then)
        changes += [f"component {name} removed" for name in sorted(here.keys() - there.keys())]
        changes += [f"component {name} added" for name in sorted(there.keys() - here.keys())]
        changes += [
            f"component {name} changed" for name in sorted(here.keys() & there.keys()) if here[name] != there[name]
        ]
        changes += [f"{kind} changed" for kind in ("annotations", "labels") if _of(now, kind) != _of(then, kind)]
        if now.manifest["spec"].get("policies") != then.manifest["spec"].get("policies"):
            changes.append("policies changed")
    if now.version != name_of(version):
        changes.append(
            f"annotation version set to {name_of(version)}" if name_of(version) else "annotation version removed"
        )
    return changes


def _components(projection: Projection) -> dict[str, Any]:
    return {str(component["name"]): component for component in projection.manifest["spec"]["components"]}


def _of(projection: Projection, kind: str) -> Mapping[str, str]:
    found: Mapping[str, str] = projection.manifest["metadata"].get(kind) or {}
    return found
