"""The page of permissions: the rules of each service in Kubernetes, from deploy/rbac.

Pure. In: the objects of a file by its name. Out: a page. Called by ``__main__``.
Invariant: each rule of a Role or ClusterRole has one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trellis_tools.reference.markdown import GENERATED, code, table

Files = Mapping[str, Sequence[Mapping[str, Any]]]

_ROLES: Final = frozenset({"Role", "ClusterRole"})
_INTRODUCTION: Final = """# Permissions

Permissions of the ServiceAccount of each service, from `deploy/rbac`; the chart grants the same. Tests run the services
with these permissions only, compare the requests to the API server with the rules, and fail on a rule that no request
uses. The [security model](../security.md) describes the consequences.
"""


def permissions_page(files: Files) -> str:
    """Return the page: a table for each file."""
    return "\n".join([GENERATED, _INTRODUCTION, *(_file(name, objects) for name, objects in sorted(files.items()))])


def _file(name: str, objects: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (_where(role), _resources(rule), _listed(rule.get("resourceNames", ())) or "any", ", ".join(rule["verbs"]))
        for role in objects
        if role["kind"] in _ROLES
        for rule in role.get("rules") or ()
    ]
    return f"## {name}\n\n{table(('scope', 'resources', 'names', 'verbs'), rows)}"


def _where(role: Mapping[str, Any]) -> str:
    if role["kind"] == "ClusterRole":
        return "the whole cluster"
    namespace = role["metadata"].get("namespace")
    return f"namespace {code(namespace)}" if namespace else "each namespace that it is applied in"


def _resources(rule: Mapping[str, Any]) -> str:
    if "nonResourceURLs" in rule:
        return _listed(rule["nonResourceURLs"])
    groups = rule.get("apiGroups") or [""]
    return ", ".join(code(_resource(resource, group)) for group in groups for resource in rule["resources"])


def _resource(resource: str, group: str) -> str:
    plural, slash, below = resource.partition("/")
    return f"{plural}.{group}{slash}{below}" if group else resource


def _listed(values: Sequence[str]) -> str:
    return ", ".join(code(value) for value in values)
