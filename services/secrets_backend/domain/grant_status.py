"""Computes the status of a SecretGrant: its conditions, and the health that follows from them.

Pure. In: the grant, the existing host groups, its ServiceAccounts and users. Out: the status to write. Called by
``grant_statuses``. Invariants: every replica computes the same status from the same objects; requests do not depend on
the status: ``decide`` reads only the spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from secrets_backend.domain.decide import USERS_SETTING, Grant
from trellis.crds.conditions import Health, State, Verdict, make_condition, summary
from trellis.crds.secret_grants import From

ACCEPTED: Final = "Accepted"
HOST_GROUPS: Final = "HostGroupsFound"
ACCOUNTS: Final = "AccountsUsable"


class Reason(StrEnum):
    """Reasons of the conditions."""

    ACCEPTED = "Accepted"
    INVALID = "InvalidSpec"
    FOUND = "HostGroupsFound"
    NO_HOST_GROUP = "HostGroupMissing"
    USABLE = "AccountsUsable"
    NONE = "NoAccounts"
    NO_ACCOUNT = "ServiceAccountMissing"
    NOT_PERMITTED = "ImpersonationNotPermitted"
    NOT_ALLOWED = "UserNotAllowed"
    NOT_CHECKED = "AccessNotChecked"


@dataclass(frozen=True, slots=True)
class Access:
    """Access to Secrets as a ServiceAccount or user.

    ``name``: with the kind, as a text for users; ``trouble``: why Secrets cannot be read as it, None if they can;
    ``remedy``: the command or setting that resolves it, "" for none.
    """

    name: str
    trouble: Reason | None = None
    remedy: str = ""


_TROUBLES: Final = {
    Reason.NO_ACCOUNT: "{name} does not exist",
    Reason.NOT_PERMITTED: "secrets_backend may not impersonate {name}",
    Reason.NOT_ALLOWED: f"{USERS_SETTING} of secrets_backend does not list {{name}}",
    Reason.NOT_CHECKED: "secrets_backend may not check whether {name} exists",
}
"""Texts by reason; the first reason in this order is reported."""


def status_of(
    grant: Grant,
    groups: frozenset[tuple[str, str]],
    accounts: Sequence[Access],
    former: Mapping[str, Any],
    at: tuple[int, str],
) -> dict[str, Any]:
    """Return the status of a grant.

    ``groups``: namespace and lattice of each host group; ``former``: the current status of the object; ``at``: its
    generation, and the time in RFC 3339.
    """
    own = tuple(_conditions(grant, groups, accounts))
    generation, now = at
    before = former.get("conditions") or ()
    verdicts = (*summary(health_of(own)), *own)
    return {
        "observedGeneration": generation,
        "conditions": [make_condition(verdict, before, generation, now) for verdict in verdicts],
    }


def health_of(conditions: Iterable[Verdict]) -> Health:
    """Return the health of a grant: the first of its own conditions that is not True explains it."""
    last = None
    for last in conditions:
        if last.status == "Unknown":
            return Health(State.UNKNOWN, last.reason, last.message)
        if last.status == "False":
            stalled = last.reason in {Reason.INVALID, Reason.NOT_ALLOWED}
            return Health(State.STALLED if stalled else State.RECONCILING, last.reason, last.message)
    assert last is not None
    return Health(State.READY, last.reason, last.message)


def _conditions(grant: Grant, groups: frozenset[tuple[str, str]], accounts: Sequence[Access]) -> Iterable[Verdict]:
    if grant.spec is None:
        message = "the spec is invalid, so the SecretGrant grants nothing; see `kubectl explain secretgrant.spec`"
        yield Verdict(ACCEPTED, "False", Reason.INVALID, message)
        return
    yield Verdict(ACCEPTED, "True", Reason.ACCEPTED, "the spec is valid")
    yield _host_groups(grant.spec.from_, groups)
    yield _accounts(accounts)


def _host_groups(sources: Sequence[From], groups: frozenset[tuple[str, str]]) -> Verdict:
    for source in sources:
        lattices = sorted({lattice for namespace, lattice in groups if namespace == source.namespace})
        if source.lattice in lattices or (source.lattice is None and lattices):
            continue
        if not lattices:
            message = f"namespace {source.namespace} has no host group"
        else:
            on = f"lattice {source.lattice}; its host groups are on {', '.join(lattices)}"
            message = f"namespace {source.namespace} has no host group on {on}"
        return Verdict(HOST_GROUPS, "False", Reason.NO_HOST_GROUP, message)
    return Verdict(HOST_GROUPS, "True", Reason.FOUND, "every namespace in spec.from has a host group")


def _accounts(accounts: Sequence[Access]) -> Verdict:
    if not accounts:
        message = "the SecretGrant names no ServiceAccount or user, so it denies every request, as configured"
        return Verdict(ACCOUNTS, "True", Reason.NONE, message)
    for reason, text in _TROUBLES.items():
        found = [account for account in accounts if account.trouble is reason]
        if found:
            first = found[0]
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            remedy = f": {first.remedy}" if first.remedy else ""
            status = "Unknown" if reason is Reason.NOT_CHECKED else "False"
            return Verdict(ACCOUNTS, status, reason, f"{text.format(name=first.name)}{more}{remedy}")
    message = "secrets_backend may impersonate every ServiceAccount and user that the SecretGrant names"
    return Verdict(ACCOUNTS, "True", Reason.USABLE, message)
