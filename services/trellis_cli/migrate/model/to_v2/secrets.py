"""References to Secrets of components, with the grant that permitted the read on v1.

Pure. In: the secrets of a component, the policies, the grants. Out: names of Secrets for ``secretFrom``. Called by
``convert``. Invariants: values of Secrets are neither input nor output; a Secret of another namespace is not
referenced, as v2 would read one of the same name in its own namespace.
Source: v2 reads Secrets of the workload's namespace with the permissions of its operator, and passes all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis_cli.migrate.model.to_v2.reading import App, Piece, SecretUse
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way
from trellis_cli.secrets.model import POLICY_TYPE, Row, RuleInputs, Use, judge

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MOST: Final = 253
_DEFAULT_NAMESPACE: Final = "default"
_BACKEND: Final = "backend"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of an application.

    ``rules``: grants and settings of v1, None if they are not known; ``backend``: name of the backend that serves
    Secrets of Kubernetes on v1.
    """

    app: App
    namespace: str
    backend: str
    rules: RuleInputs | None
    record: Record

    def references(self, piece: Piece, target: str) -> list[str]:
        """Return the names of the Secrets of a component, and record each secret; ``target``: its workload."""
        found = [name for use in piece.secrets if (name := self._reference(piece, use, target))]
        return list(dict.fromkeys(found))

    def _reference(self, piece: Piece, use: SecretUse, target: str) -> str:
        """Return the name of a Secret, "" if v2 cannot read it."""
        policy = self.policy(use)
        if policy is None:
            self.record.note(
                use.place,
                Reason.SECRET_POLICY,
                f"secret {use.name} of {piece.name} names policy {use.policy!r}, which is not a policy for secrets",
                "Create a Secret, and add it to secretFrom.",
                Way.OBJECT,
            )
            return ""
        if problem := self.unreadable(use, policy):
            reason, message, instead, way = problem
            self.record.note(use.place, reason, f"secret {use.name} of {piece.name}: {message}", instead, way)
            return ""
        self.record.done(use.place, target)
        for reason, message, instead, way in self._differences(piece, use, policy):
            self.record.note(use.place, reason, f"secret {use.name} of {piece.name}: {message}", instead, way)
        return use.key

    def unreadable(self, use: SecretUse, policy: Mapping[str, Any]) -> tuple[Reason, str, str, Way] | None:
        """Return why v2 cannot read a secret, None if it can."""
        backend = policy.get(_BACKEND)
        if backend != self.backend:
            return (
                Reason.SECRET_BACKEND,
                f"it is in backend {backend!r}, and Secrets of Kubernetes are in {self.backend!r}",
                "Create a Secret with it, and add it to secretFrom.",
                Way.OBJECT,
            )
        namespace = _namespace(policy)
        if namespace != self.namespace:
            return (
                Reason.SECRET_NAMESPACE,
                f"Secret {namespace}/{use.key} is in another namespace; v2 reads namespace {self.namespace} only",
                f"Create it in namespace {self.namespace}, for example by an ExternalSecret, and add it to secretFrom.",
                Way.OBJECT,
            )
        if not _NAME.fullmatch(use.key) or len(use.key) > _NAME_MOST:
            message = f"{use.key!r} is not a name of a Secret"
            return Reason.SECRET_NAME, message, "Create a Secret, and add it to secretFrom.", Way.OBJECT
        return None

    def _differences(
        self, piece: Piece, use: SecretUse, policy: Mapping[str, Any]
    ) -> Iterator[tuple[Reason, str, str, Way]]:
        passed = (
            f"v2 passes all keys of Secret {self.namespace}/{use.key} to the component; {self._granted(piece, use)}"
        )
        instead = (
            f"Read {use.field or 'its key'} as environment variable or by wasi:config/store, not {use.name} by "
            "wasmcloud:secrets/store; keep a Secret per component."
        )
        yield Reason.SECRET_INTERFACE, passed, instead, Way.COMPONENT
        if account := policy.get("impersonate"):
            yield (
                Reason.SECRET_IMPERSONATION,
                f"v1 read it as {account}; v2 reads it with the permissions of its operator",
                f"Restrict who may create workloads in namespace {self.namespace}: they can read all of its Secrets.",
                Way.HOSTS,
            )
        if use.version:
            yield Reason.SECRET_VERSION, "v2 has no versions of Secrets", "v2 reads the current one.", Way.NOTHING
        if self._claims_checked():
            yield (
                Reason.CLAIMS_NOT_CHECKED,
                "a SecretGrant permits only components that certain issuers signed; v2 does not check JWT claims",
                "Verify signatures of images at admission, for example with a policy of Kyverno.",
                Way.HOSTS,
            )

    def policy(self, use: SecretUse) -> Mapping[str, Any] | None:
        """Return the properties of the policy of a secret, None if the application has no such policy for secrets."""
        found = [item for item in self.app.policies if item["name"] == use.policy and item["type"] == POLICY_TYPE]
        return found[0]["properties"] if found else None

    def _granted(self, piece: Piece, use: SecretUse) -> str:
        """Return which grant permitted the read on v1, as text."""
        if self.rules is None:
            return "the grant of v1 is unknown"
        row = judge(self.app.manifest, Use(piece.name, use.name, use.policy, use.key, use.field), self.rules)
        if row.identity is None:
            return f"v1 did not permit it: {_refusal(row)}"
        return f"v1 permitted it by: {row.identity.rule}, read as {row.identity.user}"

    def _claims_checked(self) -> bool:
        grants = () if self.rules is None else self.rules.connection.grants
        there = [grant for grant in grants if grant.namespace == self.namespace and grant.spec is not None]
        return any(grant.spec is not None and grant.spec.entity_issuers is not None for grant in there)


def note_policies(policies: Sequence[Mapping[str, Any]], record: Record) -> None:
    """Record the policies: v2 has none."""
    for at, policy in enumerate(policies):
        record.note(
            f"spec.policies[{at}]",
            Reason.POLICY,
            f"policy {policy['name']} of type {policy['type']}: v2 has no policies in workloads",
            "RBAC, admission policies and NetworkPolicies replace it.",
            Way.OBJECT,
        )


def _namespace(policy: Mapping[str, Any]) -> str:
    namespace = policy.get("namespace")
    return _DEFAULT_NAMESPACE if namespace is None else str(namespace)


def _refusal(row: Row) -> str:
    return "; ".join(step.text for step in row.steps if step.ok is not True) or "unknown"
