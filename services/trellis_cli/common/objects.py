"""Names of objects on the command line: ``KIND NAME`` or ``KIND/NAME``, with the names that kubectl accepts.

Pure. In: words of the command line. Out: kind, name, namespace. Called by every command with an object argument.
Invariant: a kind has the same name in all commands, which is also the printed one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trellis.config.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. ``aliases``: its other names, including plural and short names; ``group``: its API group.

    ``resource``: the singular name that kubectl prints, if different.
    """

    name: str
    aliases: tuple[str, ...]
    group: str = ""
    namespaced: bool = True
    resource: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("node", ("nodes", "no"), namespaced=False),
        Kind("shim", ("shims",), "runtime.spinkube.dev", namespaced=False),
        Kind(
            "hostgroup",
            ("hostgroups", "wasmcloudhostconfig", "wasmcloudhostconfigs", "whc"),
            "k8s.wasmcloud.dev",
            resource="wasmcloudhostconfig",
        ),
        Kind("host", ("hosts", "pod", "pods", "po"), resource="pod"),
        Kind("application", ("applications", "app", "apps"), "core.oam.dev"),
        Kind("service", ("services", "svc")),
        Kind(
            "controller",
            ("controllers", "wasmcontroller", "wasmcontrollers", "wasmctl"),
            "trellis.dev",
            resource="wasmcontroller",
        ),
        Kind("secretgrant", ("secretgrants",), "trellis.dev"),
        Kind("secret", ("secrets",)),
        Kind("deadletter", ("deadletters",), namespaced=False),
        Kind("workloaddeployment", ("workloaddeployments",), "runtime.wasmcloud.dev"),
        Kind("workload", ("workloads", "ww"), "runtime.wasmcloud.dev"),
        Kind("whost", ("whosts",), "runtime.wasmcloud.dev", resource="host"),
        Kind("artifact", ("artifacts",), "runtime.wasmcloud.dev"),
        Kind("whostgroup", ("whostgroups",)),
        Kind("pod", ("pods", "po")),
        Kind("deployment", ("deployments", "deploy"), "apps"),
        Kind("statefulset", ("statefulsets", "sts"), "apps"),
        Kind("daemonset", ("daemonsets", "ds"), "apps"),
        Kind("job", ("jobs",), "batch"),
        Kind("cronjob", ("cronjobs", "cj"), "batch"),
        Kind("spinapp", ("spinapps",), "core.spinkube.dev"),
        Kind("wasmpod", ("wasmpods",)),
    )
}
RENAMED: Final[Mapping[str, str]] = {
    "group": "hostgroup",
    "groups": "hostgroup",
    "letter": "deadletter",
    "letters": "deadletter",
}
"""Current names of kinds by their former names, which are rejected."""
_NAMES: Final = {name: kind for kind in KINDS.values() for name in (kind.name, *kind.aliases)}
_QUALIFIED: Final = {
    (name, kind.group): kind
    for kind in KINDS.values()
    if kind.resource and kind.group
    for name in (kind.resource, f"{kind.resource}s")
}
"""Kinds by the name of their resource and its group: ``hosts.runtime.wasmcloud.dev`` is not the kind ``host``."""


@dataclass(frozen=True, slots=True)
class ObjectName:
    """An object on the command line; ``namespace`` is None if not given."""

    kind: str
    name: str
    namespace: str | None = None


def printed_name(kind: str, name: str) -> str:
    """Return the output of ``-o name`` for an object, as in kubectl: ``shim.runtime.spinkube.dev/spin``."""
    found = KINDS[kind]
    return f"{found.resource or found.name}{'.' if found.group else ''}{found.group}/{name}"


def read_kind(word: str, accepted: Iterable[str]) -> str:
    """Return the name of a kind from any of its names, case-insensitive: ``no``, ``Shims.runtime.spinkube.dev``.

    Raises:
        SettingsError: no accepted kind has the name.
    """
    accepted = tuple(accepted)
    name, _, group = word.lower().partition(".")
    if name in RENAMED:
        raise SettingsError(f'kind "{word}": renamed to "{RENAMED[name]}"')
    named = [kind for kind in KINDS.values() if kind.name in accepted and name in (kind.name, *kind.aliases)]
    # Of two kinds with the name, "pod" is the kind pod, and host only where no kind pod is accepted.
    named.sort(key=lambda kind: kind.resource != "")
    found = _QUALIFIED.get((name, group)) or next(iter(named), None)
    if found is None or found.name not in accepted or (group and group != found.group):
        near = difflib.get_close_matches(name, [item for item in _NAMES if _NAMES[item].name in accepted], n=1)
        meant = f'; did you mean "{near[0]}"?' if near and near[0] != name else ""
        raise SettingsError(f'unknown kind "{word}": KIND is one of: {", ".join(accepted)}{meant}')
    return found.name


def read_object(
    arguments: Sequence[str], accepted: Sequence[str], namespace: str | None = None, *, default: str = ""
) -> ObjectName:
    """Return the object of ``KIND NAME``, ``KIND/NAME`` or ``KIND/NAMESPACE/NAME``.

    ``accepted``: names of kinds; ``default``: the kind of a single ``NAME``, "" if there is none.

    Raises:
        SettingsError: the words do not name an object of an accepted kind.
    """
    kind, place, name = _parts(arguments, default)
    found = KINDS[read_kind(kind, accepted)]
    if not name or "/" in name or (place and (namespace or not found.namespaced)):
        usage = " or ".join(("KIND NAME", "KIND/NAME", *(["NAME"] if default else [])))
        raise SettingsError(
            f'"{" ".join(arguments)}" is not an object: use {usage}; KIND is one of: {", ".join(accepted)}'
        )
    return ObjectName(found.name, name, place or namespace)


def _parts(arguments: Sequence[str], default: str) -> tuple[str, str, str]:
    """Return kind, namespace and name; the name is "" if it is missing or there are too many words."""
    first = arguments[0] if arguments else default
    if len(arguments) == 1 and "/" not in first:
        return (default, "", first) if default else (first, "", "")
    if len(arguments) == 1:
        kind, _, rest = first.partition("/")
        place, _, name = rest.rpartition("/")
        return (kind, place, name) if "/" not in place else (kind, "", rest)
    return first, "", arguments[1] if len(arguments) == 2 else ""
