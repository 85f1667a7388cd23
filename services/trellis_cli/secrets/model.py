"""The rules for each secret of an application, as far as manifests determine them.

Pure. In: an Application, host groups, SecretGrants, a parsed token. Out: rows of steps; the reviews to request from the
API server. Called by ``secrets.check``. Invariant: values of Secrets are neither input nor output.
Source: wadm 0.21: it removes ``backend`` from the properties of a policy for the subject, and passes the rest to the
host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from secrets_backend.domain.decide import ConnectionGrant, Grant, Identity, identify
from secrets_backend.domain.policy import Policy, read_policy
from secrets_backend.domain.refusals import Refusal
from secrets_backend.domain.resources import ACCOUNT, ACCOUNT_PREFIX, account_of
from secrets_backend.domain.tokens import Token
from trellis.kube.resources import SECRET_GRANTS
from trellis.lattice.domain.group_views import GroupView

Manifest = Mapping[str, Any]

POLICY_TYPE: Final = "policy.secret.wasmcloud.dev/v1alpha1"
_SENT_TYPE: Final = "properties.secret.wasmcloud.dev/v1alpha1"
DEFINITION: Final = "CRD of SecretGrants"
READING: Final = "permission to read"
_REFUSES: Final = "secrets_backend refuses every request with UpstreamError"
_ANY_USER: Final = Token("", "", None)


@dataclass(frozen=True, slots=True)
class Step:
    """One rule. ``ok``: True permits access, False denies it, None is unknown."""

    what: str
    ok: bool | None
    text: str

    def document(self) -> dict[str, Any]:
        """Return the step for JSON."""
        return {"what": self.what, "ok": self.ok, "text": self.text}


@dataclass(frozen=True, slots=True)
class Use:
    """A secret in a manifest for a component. ``place``: the component, or the end of the link."""

    place: str
    name: str
    policy: str
    secret: str
    entry: str


@dataclass(frozen=True, slots=True)
class Row:
    """One secret, with its rules in evaluation order. ``identity``: the account that reads it, if determined."""

    use: Use
    identity: Identity | None = None
    steps: tuple[Step, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """True if no rule denies access."""
        return not any(step.ok is False for step in self.steps)

    def and_then(self, *steps: Step) -> Row:
        """Return the row with more steps."""
        return replace(self, steps=(*self.steps, *steps))

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "ok": self.ok,
            "component": self.use.place,
            "name": self.use.name,
            "secret": self.use.secret,
            "field": self.use.entry,
            "policy": self.use.policy,
            "namespace": self.identity.namespace if self.identity else None,
            "user": self.identity.user if self.identity else None,
            "rule": self.identity.rule if self.identity else None,
            "steps": [step.document() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """Inputs of the rules. ``token``: None if not given; ``users``, ``backend``: settings of the service."""

    connection: ConnectionGrant
    token: Token | None
    users: frozenset[str]
    backend: str


def judge_definition(found: Manifest | None, age: float, closed: float) -> Step:
    """Return whether secrets_backend can respond with this CRD of SecretGrants; ``found`` None: it does not exist.

    ``age``: seconds since its creation by the local clock. ``closed``: seconds for which a new CRD denies access.
    """
    if found is None:
        return Step(DEFINITION, False, f"not found: {_REFUSES}; `trellis crds apply {SECRET_GRANTS.plural}`")
    if found["metadata"].get("deletionTimestamp"):
        return Step(DEFINITION, False, f"is being deleted: {_REFUSES} until it is re-created")
    if (left := closed - age) > 0:
        return Step(
            DEFINITION,
            None,
            "created a short time ago: if SecretGrants were deleted with a previous CRD, requests for their namespaces "
            f"get UpstreamError for {min(left, closed):.0f} s, or until the grants are re-created",
        )
    return Step(DEFINITION, True, "established")


def uses_of(app: Manifest) -> list[Use]:
    """Return the secrets of an Application by component: its own, then those of its links."""
    return [
        use
        for component in (app.get("spec") or {}).get("components") or ()
        for place, holder in _holders(component)
        for use in _uses(place, holder)
    ]


def _holders(component: Manifest) -> Iterator[tuple[str, Any]]:
    name = str(component.get("name"))
    yield name, component.get("properties")
    for trait in component.get("traits") or ():
        link = trait.get("properties") or {}
        package = f"{link.get('namespace')}:{link.get('package')}"
        yield f"{name} (its end of the link {package})", link.get("source")
        target = link.get("target")
        to = target.get("name") if isinstance(target, Mapping) else target
        yield f"{to} (its end of the link {package} from {name})", target


def _uses(place: str, holder: Any) -> Iterator[Use]:  # noqa: ANN401 - JSON; a target can be only a name
    for secret in (holder.get("secrets") or ()) if isinstance(holder, Mapping) else ():
        properties = secret.get("properties") or {}
        values = (secret.get("name"), properties.get("policy"), properties.get("key"), properties.get("field"))
        yield Use(place, *("" if word is None else str(word) for word in values))


def judge(app: Manifest, use: Use, around: RuleInputs) -> Row:
    """Return the rules that only need manifests: the policy, and the grant."""
    row = Row(use)
    found = [item for item in (app.get("spec") or {}).get("policies") or () if item.get("name") == use.policy]
    if not found:
        return row.and_then(Step("policy", False, f"policy {use.policy!r} not found in spec.policies"))
    policy = _policy(found[0], around.backend)
    if isinstance(policy, Step):
        return row.and_then(policy)
    wanted = _wanted(use, policy)
    if wanted.ok is False:
        return row.and_then(wanted)
    return _granted(row.and_then(wanted), policy, around)


def _policy(policy: Manifest, backend: str) -> Policy | Step:
    name, properties = policy.get("name"), dict(policy.get("properties") or {})
    if policy.get("type") != POLICY_TYPE:
        return Step("policy", False, f"policy {name} is of type {policy.get('type')!r}, needs {POLICY_TYPE}")
    named = properties.pop("backend", None)
    if named is None:
        return Step("policy", False, f"policy {name} names no backend: add backend: {backend} to its properties")
    if named != backend:
        return Step("policy", None, f"policy {name} uses backend {named!r}, not {backend!r}")
    try:
        return read_policy(orjson.dumps({"type": _SENT_TYPE, "properties": properties}).decode())
    except Refusal as refusal:
        return Step("policy", False, f"policy {name}: {refusal.message}")


def _wanted(use: Use, policy: Policy) -> Step:
    if not use.secret or not use.entry:
        return Step("policy", False, "a secret needs key, the name of the Secret, and field, the entry in its data")
    account = policy.impersonate or "(none named)"
    return Step("policy", True, f"entry {use.entry} of Secret {policy.namespace}/{use.secret}, impersonate {account}")


def _granted(row: Row, policy: Policy, around: RuleInputs) -> Row:
    token, connection, note = around.token, around.connection, ""
    if token is None:
        token, connection, limited = _ANY_USER, *_without_issuer_limit(connection, policy.namespace)
        note = "; issuer unknown: use --entity-jwt" if limited else ""
    try:
        identity = identify(policy, token, connection, around.users)
    except Refusal as refusal:
        return row.and_then(Step("grant", False, refusal.message))
    step = Step("grant", None if note else True, f"{identity.rule}: read as {identity.user}{note}")
    return replace(row.and_then(step), identity=identity)


def _without_issuer_limit(connection: ConnectionGrant, namespace: str) -> tuple[ConnectionGrant, bool]:
    """Return the grant of a lattice connection without its issuer limit, and whether the limit affects a namespace."""
    counting = [
        grant for grant in connection.grants if grant.namespace == namespace and grant.is_for(connection.groups)
    ]
    limited = any(item.spec is not None and item.spec.entity_issuers is not None for item in counting)
    open_ = [
        replace(grant, spec=grant.spec and grant.spec.model_copy(update={"entity_issuers": None}))
        for grant in connection.grants
    ]
    return replace(connection, grants=tuple(open_)), limited


def connection_grant_of(group: GroupView, groups: Iterable[GroupView], grants: Sequence[Grant]) -> ConnectionGrant:
    """Return the grant of the connection of a host group: all groups with its NATS and credentials share it."""
    own = _nats_of(group)
    there = [item for item in groups if not item.deleting and item.spec is not None and _nats_of(item) == own]
    pairs = frozenset((item.namespace, item.spec.lattice) for item in there if item.spec is not None)
    return ConnectionGrant(frozenset(item.namespace for item in there), pairs, tuple(grants))


def _nats_of(group: GroupView) -> tuple[str, ...]:
    spec = group.spec
    assert spec is not None  # read_groups omits groups without a spec
    secrets = (spec.secret_name, spec.tls_secret)
    place = group.namespace if any(secrets) else ""
    return (spec.nats_address, str(spec.nats_client_port), place, *secrets)


def impersonation_review(identity: Identity, home: str) -> dict[str, Any]:
    """Return the review whether secrets_backend, installed in ``home``, may impersonate this account or user."""
    account = account_of(identity.user)
    attributes = (
        {"verb": "impersonate", "resource": "serviceaccounts", "namespace": account[0], "name": account[1]}
        if account
        else {"verb": "impersonate", "resource": "users", "name": identity.user}
    )
    return _review(f"{ACCOUNT_PREFIX}{home}:{ACCOUNT}", attributes)


def reading_review(identity: Identity, secret: str) -> dict[str, Any]:
    """Return the review whether the account or user may read a Secret."""
    attributes = {"verb": "get", "resource": "secrets", "namespace": identity.namespace, "name": secret}
    return _review(identity.user, attributes)


def _review(user: str, attributes: dict[str, str]) -> dict[str, Any]:
    """Return a SubjectAccessReview with the groups that the API server adds to impersonated users."""
    account = account_of(user)
    accounts = ACCOUNT_PREFIX.rstrip(":") + "s"
    groups = [accounts, f"{accounts}:{account[0]}"] if account else []
    spec = {"user": user, "groups": [*groups, "system:authenticated"], "resourceAttributes": attributes}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
