"""Decides whether a request may name its namespace and account, and the identity that reads the Secret.

Pure. In: a policy, the entity's token, the grant of the lattice connection, the users of the setting. Out: an
``Identity``, or a ``Refusal`` with the missing configuration. Called by ``answering`` and by ``trellis secrets check``.
Invariants: nothing outside the grant is read; no answer reveals whether a Secret exists; an unreadable object grants
nothing. A grant is not sufficient: Kubernetes authorizes the read next, with the permissions of the account.
Why by connection: any client that can publish on its NATS can create tokens, and a request does not name its lattice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from secrets_backend.domain.policy import Policy
from secrets_backend.domain.refusals import ErrorName, Reason, Refusal
from secrets_backend.domain.resources import ACCOUNT_PREFIX
from secrets_backend.domain.tokens import Token
from trellis import names
from trellis.crds.secret_grants import ANY, SecretGrantSpec

USERS_SETTING: Final = "TRELLIS_SECRETS_USERS"
ISSUERS_FIELD: Final = "entityIssuers"
_ACCOUNT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX: Final = 253
_NAMED: Final = 3
"""Maximum number of namespaces or SecretGrants in a message."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A SecretGrant. ``spec``: None if it is invalid; then it applies to every connection, and grants nothing."""

    namespace: str
    name: str
    spec: SecretGrantSpec | None

    def __str__(self) -> str:
        """Return ``SecretGrant namespace/name``."""
        return f"SecretGrant {self.namespace}/{self.name}"

    def is_for(self, groups: frozenset[tuple[str, str]]) -> bool:
        """Return whether it applies to a connection with these host groups: namespace and lattice of each."""
        if self.spec is None:
            return True
        return any(
            item.namespace == namespace and item.lattice in {None, lattice}
            for item in self.spec.from_
            for namespace, lattice in groups
        )


@dataclass(frozen=True, slots=True)
class ConnectionGrant:
    """The grant for the requests of a connection.

    ``home``: the namespaces of its host groups; ``groups``: namespace and lattice of each group; ``grants``: all
    SecretGrants, or at least those that may apply to it. ``known``: False while SecretGrants or host groups cannot be
    read; then nothing is granted, as a SecretGrant also limits what is granted by default. ``unsure``: the namespaces
    for which only that applies, since a SecretGrant for the connection may have been deleted with the CRD.
    """

    home: frozenset[str]
    groups: frozenset[tuple[str, str]]
    grants: tuple[Grant, ...] = ()
    known: bool = True
    unsure: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity and namespace of a read of a Secret, and the rule that grants it, as a text for users."""

    user: str
    namespace: str
    rule: str


def view_grant(manifest: Mapping[str, Any]) -> Grant:
    """Return the view of a SecretGrant from the API server."""
    metadata = manifest["metadata"]
    try:
        spec = SecretGrantSpec.model_validate(manifest.get("spec"))
    except ValidationError:  # older than an admission rule, or of a newer version
        spec = None
    return Grant(metadata["namespace"], metadata["name"], spec)


def identify(policy: Policy, token: Token, connection: ConnectionGrant, users: frozenset[str]) -> Identity:
    """Return the identity that reads the Secret of a request.

    ``token``: the entity's. ``users``: those of the setting, which may be impersonated by their full names.

    Raises:
        Refusal: ``PolicyError``: the grant of the connection lacks it; ``UpstreamError``: the grant is unknown.
    """
    if not connection.known:
        raise Refusal(
            ErrorName.UPSTREAM,
            "SecretGrants or host groups cannot be read, or the CRD of SecretGrants is being deleted: retry",
        )
    if policy.namespace in connection.unsure:
        raise Refusal(
            ErrorName.UPSTREAM,
            f"a SecretGrant of namespace {policy.namespace} may have been deleted with its CRD: retry, or re-create it",
        )
    user = policy.impersonate
    account = (user or names.SECRETS_ACCOUNT).removeprefix(_user("", policy.namespace))
    there = sorted(
        (item for item in connection.grants if item.namespace == policy.namespace), key=lambda item: item.name
    )
    grants = [item for item in there if item.is_for(connection.groups)]
    if not grants:
        return _by_default(account, policy.namespace, connection)
    valid = [(item, item.spec) for item in grants if item.spec is not None]
    let = [(item, spec) for item, spec in valid if spec.entity_issuers is None or token.issuer in spec.entity_issuers]
    for grant, spec in let:
        if user and user in users and user in (spec.users or ()):
            return Identity(user, policy.namespace, f"{grant}: users")
    for grant, spec in let:
        if _is_account(account) and not {account, ANY}.isdisjoint(spec.service_accounts or ()):
            return Identity(_user(account, policy.namespace), policy.namespace, f"{grant}: serviceAccounts")
    if not valid:
        raise _refused(Reason.GRANT_INVALID, f"{_joined(grants)} is invalid, and so grants nothing: correct its spec")
    if not let:
        raise _refused(
            Reason.ISSUER_NOT_GRANTED,
            f"{token.subject} is of issuer {token.issuer}, which is not in {ISSUERS_FIELD} of "
            f"{_joined(item for item, _ in valid)}: add it there",
        )
    raise _outside(account, policy.namespace, let, users)


def _by_default(name: str, namespace: str, connection: ConnectionGrant) -> Identity:
    if not connection.home:
        raise _refused(Reason.NO_HOST_GROUPS, "no host group is on this NATS any more, so nothing is granted there")
    if namespace not in connection.home:
        places = sorted(connection.home)
        source = f"from namespace {', '.join(places[:_NAMED])}{', …' if len(places) > _NAMED else ''}"
        raise _refused(
            Reason.NAMESPACE_NOT_GRANTED,
            f"this lattice is not granted namespace {namespace}: create a SecretGrant in it, {source}, "
            "or name a namespace of the lattice's hosts",
        )
    if not _is_account(name):
        raise _refused(
            Reason.INVALID_ACCOUNT_NAME,
            f"{name!r} is not a name of a ServiceAccount: name one of namespace {namespace}; for a user, add it to "
            f"users of a SecretGrant in namespace {namespace} and to {USERS_SETTING}",
        )
    return Identity(_user(name, namespace), namespace, f"namespace {namespace} has hosts of this lattice")


def _outside(
    name: str, namespace: str, grants: Iterable[tuple[Grant, SecretGrantSpec]], users: frozenset[str]
) -> Refusal:
    """Return the refusal if none of these grants has the account or user, with the missing configuration."""
    listing = [item for item, spec in grants if name in (spec.users or ())]
    if listing:
        return _refused(
            Reason.USER_NOT_ALLOWED,
            f"user {name} is in {_joined(listing)}, but not in {USERS_SETTING} of secrets_backend: add it there",
        )
    places = _joined(item for item, _ in grants)
    if name in users:
        return _refused(
            Reason.USER_NOT_GRANTED, f"user {name} is in {USERS_SETTING}, but not in {places}: add it to users there"
        )
    if not _is_account(name):
        return _refused(
            Reason.USER_NOT_GRANTED,
            f"{name!r} is not a ServiceAccount of namespace {namespace}, or a user of {places}: add it to users there",
        )
    return _refused(
        Reason.ACCOUNT_NOT_GRANTED,
        f"ServiceAccount {namespace}/{name} is not in {places}: add it to serviceAccounts there",
    )


def _is_account(name: str) -> bool:
    return len(name) <= _NAME_MAX and _ACCOUNT_NAME.fullmatch(name) is not None


def _user(account: str, namespace: str) -> str:
    return f"{ACCOUNT_PREFIX}{namespace}:{account}"


def _joined(grants: Iterable[Grant]) -> str:
    found = [str(grant) for grant in grants]
    return " and ".join(found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")


def _refused(reason: Reason, message: str) -> Refusal:
    return Refusal(ErrorName.POLICY, message, reason)
