"""The permissions of ``deploy/rbac`` that the suite's services used, and those that were refused, for the whole suite.

In: the audit log of each test process' cluster. Out: a file for each, and their sum's faults: a refusal by RBAC, and a
rule that no test uses. Called by the fixture ``cluster`` at its end, and by ``tests/integration/run.py`` after all.
Source of the marks: kube-apiserver's audit events (``authorization.k8s.io/decision``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import orjson

from support.cluster.grants import Manifest, manifests, used, user_of
from trellis.events.subjects import CONSOLE
from trellis.services import SERVICES

FOLDER_VARIABLE: Final = "RIGHTS_SEEN_FOLDER"
"""Where the test processes write what their clusters saw."""
SUITE: Final = "-suite"
FILES: Final = sorted(f"{service.name}.yaml" for service in SERVICES.values() if service.package != CONSOLE)
"""Not the console's: its account may do nothing."""
_READING: Final = frozenset({"get", "list", "watch"})
_USER: Final = "system:serviceaccount:trellis-system:"

Pair = tuple[str, str]
"""A verb, and a resource with its group and subresource."""

_GIVEN_ON = "each group's own Role gives it to hosts, and nobody may give what he does not have"
_BY_CHANCE = (
    "read where a simulated installer ends between two writes of its pod, so not in every run; real nodes use it"
)
_OF_OPENSHIFT = "the API server asks for it where OwnerReferencesPermissionEnforcement is on, which is off by default"
NOT_USED: Final[dict[str, dict[Pair, str]]] = {
    "host-manager.yaml": {(verb, "services"): _GIVEN_ON for verb in ("list", "update", "delete")},
    "provisioner.yaml": {("get", "pods/log"): _BY_CHANCE},
    "service-reflector.yaml": {("update", "services/finalizers"): _OF_OPENSHIFT},
}
"""What this suite does not use, or not in every run, and why."""


def is_read_by_suite(record: Manifest) -> bool:
    """Say whether a record is a reading call of a service as the suite's account; a cluster logs writes else."""
    return record["verb"] in _READING and user_of(record).endswith(SUITE)


def write_seen(audit_log: Path, folder: Path) -> None:
    """Write what services' accounts used, and what the suite's were refused and never given.

    An API server that has just started refuses what it gives a moment later, when it has read the Roles.
    """
    users: dict[str, list[Manifest]] = {}
    with audit_log.open("rb") as log:
        for line in log:
            if _USER.encode() in line and line.endswith(b"\n"):
                record = orjson.loads(line)
                user = user_of(record)
                if user.startswith(_USER) and "impersonatedUser" not in record:
                    users.setdefault(user.removeprefix(_USER), []).append(record)
    seen: dict[str, dict[str, list[Any]]] = {}
    for user, records in users.items():
        its = seen.setdefault(user.removesuffix(SUITE), {"used": [], "refused": []})
        its["used"] += {(verb, resource) for verb, resource, _ in used(filter(_allowed, records), _USER + user)}
        if user.endswith(SUITE):
            its["refused"] += sorted(
                {_call(item) for item in records if _refused(item)} - {*map(_call, filter(_allowed, records))}
            )
    (folder / f"{os.getpid()}.json").write_bytes(orjson.dumps(seen))


def faults(folder: Path, *, whole: bool = True) -> list[str]:
    """Return what is wrong with the rights of ``deploy/rbac``; what was not used says something of a ``whole`` run."""
    seen = [orjson.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    wrong = [
        f"{account} was refused: {call}" for item in seen for account, its in item.items() for call in its["refused"]
    ]
    for name in FILES if whole else ():
        account = f"trellis-{name.removesuffix('.yaml')}"
        found = {tuple(pair) for item in seen for pair in item.get(account, {}).get("used", ())}
        excused = NOT_USED.get(name, {})
        unused = given_pairs(manifests(name)) - found - set(excused)
        wrong += [
            f"deploy/rbac/{name} gives {verb} {resource}, and no test uses it" for verb, resource in sorted(unused)
        ]
        wrong += [
            f"{verb} {resource} of {name} is used: NOT_USED is wrong"
            for verb, resource in sorted(set(excused) & found)
            if excused[verb, resource] != _BY_CHANCE
        ]
    return wrong


def given_pairs(found: Iterable[Manifest]) -> set[Pair]:
    """Return the verbs and resources that Roles and ClusterRoles give, wherever."""
    return {
        (verb, resource if not group else _grouped(resource, group))
        for item in found
        for rule in item.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _grouped(resource: str, group: str) -> str:
    plural, _, subresource = resource.partition("/")
    return f"{plural}.{group}" + (f"/{subresource}" if subresource else "")


def _allowed(record: Manifest) -> bool:
    return bool(record.get("annotations", {}).get("authorization.k8s.io/decision") == "allow")


def _refused(record: Manifest) -> bool:
    return bool(record.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid")


def _call(record: Manifest) -> str:
    return f"{record['verb']} {record['requestURI'].partition('?')[0]}"
