"""The rules for each secret of an application, as far as manifests decide them.

Pure. In: an Application, host groups, SecretGrants, a token that was read. Out: rows of steps; the reviews to request
from the API server. Called by ``secrets_check``. Invariant: no value of a Secret comes in here, so none goes out.
Source: wadm 0.21: it takes ``backend`` out of a policy's properties for the subject, and hands the rest to the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from secrets_backend.domain.decide import Grant, Identity, LinkGrant, identify
from secrets_backend.domain.policy import Policy, read_policy
from secrets_backend.domain.refusals import Refusal
from secrets_backend.domain.resources import ACCOUNT, ACCOUNT_PREFIX, account_of
from secrets_backend.domain.tokens import Token
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.kube.resources import SECRET_GRANTS
from trellis.lattice.domain.group_views import GroupView

Manifest = Mapping[str, Any]

POLICY_TYPE: Final = "policy.secret.wasmcloud.dev/v1alpha1"
_SENT_TYPE: Final = "properties.secret.wasmcloud.dev/v1alpha1"
DEFINITION: Final = "CRD of SecretGrants"
READING: Final = "permission to read"
_REFUSES: Final = "secrets_backend refuses every request with UpstreamError"
_ANYBODY: Final = Token("", "", None)


@dataclass(frozen=True, slots=True)
class Step:
    """One rule. ``well``: True lets it through, False stops it, None: not known."""

    what: str
    well: bool | None
    text: str

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"what": self.what, "ok": self.well, "text": self.text}


@dataclass(frozen=True, slots=True)
class Use:
    """A secret that a manifest hands to a component. ``place``: which one, and which end of which link."""

    place: str
    name: str
    policy: str
    secret: str
    entry: str


@dataclass(frozen=True, slots=True)
class Row:
    """One secret, with its rules in the order in which they count. ``identity``: whom it is read as, if that is so."""

    use: Use
    identity: Identity | None = None
    steps: tuple[Step, ...] = field(default=())

    @property
    def well(self) -> bool:
        """Whether nothing stops it."""
        return not any(step.well is False for step in self.steps)

    def and_then(self, *steps: Step) -> Row:
        """Return it with more steps."""
        return replace(self, steps=(*self.steps, *steps))

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "ok": self.well,
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
class Around:
    """What the rules depend on. ``token`` is None if none was given; ``users``, ``backend``: the service's settings."""

    link: LinkGrant
    token: Token | None
    users: frozenset[str]
    backend: str


def judge_definition(found: Manifest | None, age: float, closed: float) -> Step:
    """Return whether the CRD of SecretGrants lets secrets_backend answer; ``found`` None: it is not there.

    ``age``: its seconds by this machine's clock. ``closed``: for so long a new one keeps namespaces closed.
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
    """Return the secrets of an Application, component by component, those of its links after its own."""
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


def _uses(place: str, holder: Any) -> Iterator[Use]:  # noqa: ANN401 - JSON; a target may be a name alone
    for one in (holder.get("secrets") or ()) if isinstance(holder, Mapping) else ():
        properties = one.get("properties") or {}
        words = (one.get("name"), properties.get("policy"), properties.get("key"), properties.get("field"))
        yield Use(place, *("" if word is None else str(word) for word in words))


def judge(app: Manifest, use: Use, around: Around) -> Row:
    """Return the rules that manifests alone decide by: the policy, and the grant."""
    row = Row(use)
    found = [one for one in (app.get("spec") or {}).get("policies") or () if one.get("name") == use.policy]
    if not found:
        return row.and_then(Step("policy", False, f"policy {use.policy!r} not found in spec.policies"))
    policy = _policy(found[0], around.backend)
    if isinstance(policy, Step):
        return row.and_then(policy)
    wanted = _wanted(use, policy)
    if wanted.well is False:
        return row.and_then(wanted)
    return _granted(row.and_then(wanted), policy, around)


def _policy(policy: Manifest, backend: str) -> Policy | Step:
    name, properties = policy.get("name"), dict(policy.get("properties") or {})
    if policy.get("type") != POLICY_TYPE:
        return Step("policy", False, f"policy {name} is of type {policy.get('type')!r}, needs {POLICY_TYPE}")
    asked = properties.pop("backend", None)
    if asked is None:
        return Step("policy", False, f"policy {name} names no backend: add backend: {backend} to its properties")
    if asked != backend:
        return Step("policy", None, f"policy {name} uses backend {asked!r}, not {backend!r}")
    try:
        return read_policy(orjson.dumps({"type": _SENT_TYPE, "properties": properties}).decode())
    except Refusal as refusal:
        return Step("policy", False, f"policy {name}: {refusal.message}")


def _wanted(use: Use, policy: Policy) -> Step:
    if not use.secret or not use.entry:
        return Step("policy", False, "a secret needs key, the name of the Secret, and field, the entry in its data")
    account = policy.impersonate or "(none named)"
    return Step("policy", True, f"entry {use.entry} of Secret {policy.namespace}/{use.secret}, impersonate {account}")


def _granted(row: Row, policy: Policy, around: Around) -> Row:
    token, link, note = around.token, around.link, ""
    if token is None:
        token, link, limited = _ANYBODY, *_whoever_signed(link, policy.namespace)
        note = "; issuer unknown: use --entity-jwt" if limited else ""
    try:
        identity = identify(policy, token, link, around.users)
    except Refusal as refusal:
        return row.and_then(Step("grant", False, refusal.message))
    step = Step("grant", None if note else True, f"{identity.rule}: read as {identity.user}{note}")
    return replace(row.and_then(step), identity=identity)


def _whoever_signed(link: LinkGrant, namespace: str) -> tuple[LinkGrant, bool]:
    """Return a link's grant whatever the issuer, and whether that makes a difference in a namespace."""
    counting = [one for one in link.grants if one.namespace == namespace and one.is_for(link.groups)]
    limited = any(one.spec is not None and one.spec.entity_issuers is not None for one in counting)
    open_ = [
        replace(one, spec=one.spec and one.spec.model_copy(update={"entity_issuers": None})) for one in link.grants
    ]
    return replace(link, grants=tuple(open_)), limited


def link_of(group: GroupView, groups: Iterable[GroupView], grants: Sequence[Grant]) -> LinkGrant:
    """Return what the link of a group's lattice is granted: all groups with its NATS and its credentials share it."""
    mine = _nats_of(group)
    there = [one for one in groups if not one.deleting and one.spec is not None and _nats_of(one) == mine]
    pairs = frozenset((one.namespace, one.spec.lattice) for one in there if one.spec is not None)
    return LinkGrant(frozenset(one.namespace for one in there), pairs, tuple(grants))


def _nats_of(group: GroupView) -> tuple[str, ...]:
    spec: WasmCloudHostConfigSpec | None = group.spec
    assert spec is not None  # read_groups leaves out those without
    secrets = (spec.secret_name or "", (spec.leaf_tls.secret_name if spec.leaf_tls else None) or "")
    place = group.namespace if any(secrets) else ""
    return (spec.nats_address, str(spec.nats_client_port), place, *secrets)


def impersonation_review(identity: Identity, home: str) -> dict[str, Any]:
    """Return what asks whether secrets_backend, installed in ``home``, may be this account or user."""
    account = account_of(identity.user)
    attributes = (
        {"verb": "impersonate", "resource": "serviceaccounts", "namespace": account[0], "name": account[1]}
        if account
        else {"verb": "impersonate", "resource": "users", "name": identity.user}
    )
    return _review(f"{ACCOUNT_PREFIX}{home}:{ACCOUNT}", attributes)


def reading_review(identity: Identity, secret: str) -> dict[str, Any]:
    """Return what asks whether the account or user may read a Secret."""
    attributes = {"verb": "get", "resource": "secrets", "namespace": identity.namespace, "name": secret}
    return _review(identity.user, attributes)


def _review(user: str, attributes: dict[str, str]) -> dict[str, Any]:
    """Return a SubjectAccessReview, with the groups that the API server gives to whom it lets be impersonated."""
    account = account_of(user)
    accounts = ACCOUNT_PREFIX.rstrip(":") + "s"
    groups = [accounts, f"{accounts}:{account[0]}"] if account else []
    spec = {"user": user, "groups": [*groups, "system:authenticated"], "resourceAttributes": attributes}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
