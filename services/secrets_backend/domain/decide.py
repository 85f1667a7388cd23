"""Whether a request may name this namespace and this account, and whom its Secret is read as.

Pure. In: a policy, the entity's token, what the lattice's link is granted, the platform's list of users. Out: an
``Identity``, or a ``Refusal`` that says what to add. Called by ``handlers`` and by ``trellis secrets check``.
Invariants: nothing outside the grant is read, nothing tells whether a Secret is there; what cannot be read gives
nothing. That it is granted is not enough: Kubernetes decides next, by the rights of the account.
Why by link: whoever may publish on its NATS makes tokens as he likes, and a request does not say its lattice.
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
"""Of what may be many, so many are named in a message."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A SecretGrant. ``spec`` is None if it cannot be read: then it is for every link, and gives nothing."""

    namespace: str
    name: str
    spec: SecretGrantSpec | None

    def __str__(self) -> str:
        """Return ``SecretGrant namespace/name``."""
        return f"SecretGrant {self.namespace}/{self.name}"

    def is_for(self, groups: frozenset[tuple[str, str]]) -> bool:
        """Return whether it is for a link with these host groups: namespace and lattice of each."""
        if self.spec is None:
            return True
        return any(
            one.namespace == namespace and one.lattice in {None, lattice}
            for one in self.spec.from_
            for namespace, lattice in groups
        )


@dataclass(frozen=True, slots=True)
class LinkGrant:
    """What the requests of a link may name.

    ``home``: the namespaces of its host groups; ``groups``: namespace and lattice of each group; ``grants``: all
    SecretGrants, or at least those that could be for it. ``known``: False while SecretGrants or host groups cannot be
    read; then nothing is granted, as a SecretGrant also limits what is granted by default. ``unsure``: the namespaces
    of which that alone is so, since a SecretGrant for the link may have been deleted with the CRD.
    """

    home: frozenset[str]
    groups: frozenset[tuple[str, str]]
    grants: tuple[Grant, ...] = ()
    known: bool = True
    unsure: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a Secret is read as, where, and which rule says so (for users)."""

    user: str
    namespace: str
    rule: str


def view_grant(manifest: Mapping[str, Any]) -> Grant:
    """Project a SecretGrant as the API server gives it."""
    metadata = manifest["metadata"]
    try:
        spec = SecretGrantSpec.model_validate(manifest.get("spec"))
    except ValidationError:  # from before a rule of admission, or of a newer version
        spec = None
    return Grant(metadata["namespace"], metadata["name"], spec)


def identify(policy: Policy, token: Token, link: LinkGrant, users: frozenset[str]) -> Identity:
    """Return whom the Secret of a request is read as.

    ``token``: the entity's. ``users``: those that the platform lets be impersonated by their whole names.

    Raises:
        Refusal: ``PolicyError``, the link's grant does not have it; ``UpstreamError``, the grant is not known.
    """
    if not link.known:
        raise Refusal(
            ErrorName.UPSTREAM,
            "SecretGrants or host groups cannot be read, or the CRD of SecretGrants is being deleted: ask again",
        )
    if policy.namespace in link.unsure:
        raise Refusal(
            ErrorName.UPSTREAM,
            f"a SecretGrant of namespace {policy.namespace} may have been deleted with its CRD: ask again, "
            "or create it again",
        )
    user = policy.impersonate
    account = (user or names.SECRETS_ACCOUNT).removeprefix(_user("", policy.namespace))
    there = sorted((one for one in link.grants if one.namespace == policy.namespace), key=lambda one: one.name)
    grants = [one for one in there if one.is_for(link.groups)]
    if not grants:
        return _by_default(account, policy.namespace, link)
    asked = [(one, one.spec) for one in grants if one.spec is not None]
    let = [(one, spec) for one, spec in asked if spec.entity_issuers is None or token.issuer in spec.entity_issuers]
    for grant, spec in let:
        if user and user in users and user in (spec.users or ()):
            return Identity(user, policy.namespace, f"{grant}: users")
    for grant, spec in let:
        if _is_account(account) and not {account, ANY}.isdisjoint(spec.service_accounts or ()):
            return Identity(_user(account, policy.namespace), policy.namespace, f"{grant}: serviceAccounts")
    if not asked:
        raise _refused(Reason.GRANT_INVALID, f"{_joined(grants)} cannot be read, and so gives nothing: write it anew")
    if not let:
        raise _refused(
            Reason.ISSUER_NOT_GRANTED,
            f"{token.subject} is of issuer {token.issuer}, which is not in {ISSUERS_FIELD} of "
            f"{_joined(one for one, _ in asked)}: add it there",
        )
    raise _outside(account, policy.namespace, let, users)


def _by_default(name: str, namespace: str, link: LinkGrant) -> Identity:
    if not link.home:
        raise _refused(Reason.NO_HOST_GROUPS, "no group of hosts is on this NATS any more, so nothing is granted there")
    if namespace not in link.home:
        places = sorted(link.home)
        source = f"from namespace {', '.join(places[:_NAMED])}{', …' if len(places) > _NAMED else ''}"
        raise _refused(
            Reason.NAMESPACE_NOT_GRANTED,
            f"this lattice is not granted namespace {namespace}: make a SecretGrant in it, {source}, "
            "or name a namespace of the lattice's hosts",
        )
    if not _is_account(name):
        raise _refused(
            Reason.INVALID_ACCOUNT_NAME,
            f"{name!r} is not a name of a ServiceAccount: name one of namespace {namespace}; for a user, have it in "
            f"users of a SecretGrant in namespace {namespace} and in {USERS_SETTING}",
        )
    return Identity(_user(name, namespace), namespace, f"namespace {namespace} has hosts of this lattice")


def _outside(
    name: str, namespace: str, grants: Iterable[tuple[Grant, SecretGrantSpec]], users: frozenset[str]
) -> Refusal:
    """Return why none of these grants has the account or user, and what to add where."""
    listing = [one for one, spec in grants if name in (spec.users or ())]
    if listing:
        return _refused(
            Reason.USER_NOT_ALLOWED,
            f"user {name} is in {_joined(listing)}, but not in {USERS_SETTING} of secrets_backend: add it there",
        )
    places = _joined(one for one, _ in grants)
    if name in users:
        return _refused(
            Reason.USER_NOT_GRANTED, f"user {name} is in {USERS_SETTING}, but not in {places}: add it to users there"
        )
    if not _is_account(name):
        return _refused(
            Reason.USER_NOT_GRANTED,
            f"{name!r} is no ServiceAccount of namespace {namespace}, and no user of {places}: add it to users there",
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
    found = [str(one) for one in grants]
    return " and ".join(found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")


def _refused(reason: Reason, why: str) -> Refusal:
    return Refusal(ErrorName.POLICY, why, reason)
