"""The page of a SecretGrant: its host groups, its accounts, and the permission to impersonate them.

Pure. In: the grant, host groups, reviews of its accounts. Out: the page. Called by ``explain``. Invariant: no Secret is
read. ``trellis secrets check`` evaluates the Secrets of one application.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from secrets_backend.domain.decide import Identity, view_grant
from secrets_backend.domain.grant_status import ACCOUNTS, Reason
from secrets_backend.domain.resources import ACCOUNT_PREFIX
from secrets_backend.permissions import roles_hint
from trellis.crds.secret_grants import ANY, SecretGrantSpec
from trellis.read_model.explain.page import HEALTHY, Explanation, Line, Rank, condition
from trellis.read_model.explain.subject import Beside, Subject, cause_of, verdict_of
from trellis.read_model.health import Health

Manifest = Mapping[str, Any]

BACKEND: Final = "secrets-backend"
SUBJECT: Final = Subject("SecretGrant", "secretgrant", "kubectl get secretgrants -A")


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount of a grant. ``there``, ``may_be``: None if the user may not check them."""

    name: str
    there: bool | None
    may_be: bool | None


@dataclass(frozen=True, slots=True)
class GrantSnapshot:
    """State of the cluster. ``groups``: raw, None if unknown; ``accounts``: of the grant."""

    grant: Manifest
    groups: Sequence[Manifest] | None = ()
    accounts: Sequence[Account] = ()
    beside: Beside = field(default_factory=Beside)


def named_accounts(grant: Manifest) -> list[str]:
    """Return the ServiceAccounts that a grant names; empty if it permits any."""
    spec = view_grant(grant).spec
    return [
        service_account for service_account in (spec.service_accounts or () if spec else ()) if service_account != ANY
    ]


def identity_of(namespace: str, account: str) -> Identity:
    """Return the Kubernetes user of an account."""
    return Identity(f"{ACCOUNT_PREFIX}{namespace}:{account}", namespace, "")


def explain_grant(snapshot: GrantSnapshot) -> Explanation:
    """Return the page of a grant."""
    lines = [*_chain(snapshot)]
    ready = condition(snapshot.grant.get("status") or {}, "Ready")
    healthy = str(ready.get("reason")) if ready.get("status") == "True" else HEALTHY
    verdict = verdict_of(cause_of(lines), healthy)
    return SUBJECT.page(snapshot.grant, lines, snapshot.beside, verdict)


def grant_cause(grant: Manifest, groups: Sequence[Manifest] | None) -> Line | None:
    """Return why a grant has no effect, None if it has one; accounts as secrets_backend checked them."""
    return cause_of(_chain(GrantSnapshot(grant, groups)))


def _chain(snapshot: GrantSnapshot) -> Iterator[Line]:
    namespace = snapshot.grant["metadata"]["namespace"]
    spec = view_grant(snapshot.grant).spec
    if spec is None:
        text = "spec is invalid, so the grant has no effect"
        yield Line("grant", text, False, "fix the spec: `kubectl explain secretgrant.spec`", Rank.CAUSE, Reason.INVALID)
        return
    yield Line("grant", f"for Secrets of namespace {namespace}", ok=True)
    yield from _from(snapshot, spec)
    yield from _accounts(snapshot, namespace, spec)
    if spec.entity_issuers is not None:
        yield Line("issuers", f"only components signed by one of {len(spec.entity_issuers)} issuers")
    hint = "`trellis secrets check --app NAME` evaluates each secret of an application"
    yield Line("hint", hint)


def _from(snapshot: GrantSnapshot, spec: SecretGrantSpec) -> Iterator[Line]:
    if snapshot.groups is None:
        yield Line("from", "host groups unknown: this account may not list them")
        return
    there = {
        (group["metadata"]["namespace"], str((group.get("spec") or {}).get("lattice"))) for group in snapshot.groups
    }
    for item in spec.from_:
        meant = sorted(lattice for namespace, lattice in there if namespace == item.namespace)
        fits = [lattice for lattice in meant if item.lattice in {None, lattice}]
        whose = f"lattice {item.lattice}" if item.lattice else "any lattice"
        if fits:
            yield Line("from", f"{whose} of namespace {item.namespace}: {', '.join(sorted(set(fits)))}", ok=True)
            continue
        have = f"its lattices: {', '.join(sorted(set(meant)))}" if meant else "it has no host groups"
        text = f"no host group of namespace {item.namespace} is on {whose}; {have}"
        do = "use the namespace and lattice of a WasmCloudHostConfig"
        yield Line("from", text, False, do, Rank.CAUSE, Reason.NO_HOST_GROUP)


def _accounts(snapshot: GrantSnapshot, namespace: str, spec: SecretGrantSpec) -> Iterator[Line]:
    if not spec.service_accounts and not spec.users:
        yield Line("accounts", "none: the grant permits no access", ok=True)
    if ANY in (spec.service_accounts or ()):
        yield Line("accounts", f"any ServiceAccount of namespace {namespace}; each needs its own Role", ok=True)
    for account in snapshot.accounts:
        yield _account(namespace, account)
    written = _written(snapshot.grant)
    reason, message = str(written.get("reason")), str(written.get("message"))
    if reason == Reason.NOT_ALLOWED:
        yield Line(
            "user", message, False, "remove the user from spec.users, or add it to the setting", Rank.CAUSE, reason
        )
    else:
        for user in spec.users or ():
            yield Line("user", f"{user}: only if TRELLIS_SECRETS_USERS of the service has it too")
    if reason in {Reason.NO_ACCOUNT, Reason.NOT_PERMITTED} and _only_written(snapshot, spec):
        yield Line("account", message, False, rank=Rank.CAUSE, reason=reason)
    if reason == Reason.NOT_CHECKED:
        yield Line("accounts", message, False, reason=reason, state=Health.UNKNOWN)


def _only_written(snapshot: GrantSnapshot, spec: SecretGrantSpec) -> bool:
    """Return whether only the service has checked an account or user, so that its condition is the only evidence."""
    if any(account.there is False or account.may_be is False for account in snapshot.accounts):
        return False
    unknown = any(account.there is None or account.may_be is None for account in snapshot.accounts)
    return unknown or not snapshot.accounts or bool(spec.users)


def _written(grant: Manifest) -> Manifest:
    """Return the condition of the accounts as secrets_backend wrote it, {} unless it is of the current generation.

    Only the service has its setting, and its own permissions.
    """
    status = grant.get("status") or {}
    current = status.get("observedGeneration") == grant["metadata"].get("generation")
    return condition(status, ACCOUNTS) if current else {}


def _account(namespace: str, account: Account) -> Line:
    what = f"ServiceAccount {namespace}/{account.name}"
    if account.there is False:
        do = f"`kubectl -n {namespace} create serviceaccount {account.name}`"
        return Line("account", f"{what} does not exist", False, do, Rank.CAUSE, Reason.NO_ACCOUNT)
    if account.may_be is False:
        do = roles_hint(identity_of(namespace, account.name))
        text = f"{BACKEND} may not impersonate {what}"
        return Line("account", text, False, do, Rank.CAUSE, Reason.NOT_PERMITTED)
    if account.there is None or account.may_be is None:
        return Line("account", f"{what}: existence and impersonation by {BACKEND} unknown to this account")
    return Line("account", f"{what} exists, and {BACKEND} may impersonate it", ok=True)
