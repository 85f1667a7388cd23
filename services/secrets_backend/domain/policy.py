"""The policy of a workload: the namespace and the identity for the read of a Secret.

Pure. In: the policy of a request, a JSON text. Out: namespace and account. Called by ``protocol``. A policy requests
and never grants: ``decide`` does that.
Source: the policy of secrets-kubernetes, ``{"type": …, "properties": {"namespace", "impersonate"}}``; the values of
``type`` and of unknown fields are ignored, the namespace defaults to ``default``. Stricter: a namespace must be valid
as a name, an account must fit into a header without escapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from secrets_backend.domain.reading import UNREADABLE, quoted, read_object
from secrets_backend.domain.refusals import ErrorName, Refusal

_DEFAULT_NAMESPACE: Final = "default"
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """``impersonate``: the given name, None if it is missing or empty."""

    namespace: str
    impersonate: str | None


def read_policy(text: str) -> Policy:
    """Return the parsed policy.

    Raises:
        Refusal: ``PolicyError``, the policy is invalid.
    """
    policy = read_object(text)
    if policy is UNREADABLE:
        raise _refused("the policy is not a JSON object" if text else "there is no policy")
    if not isinstance(policy.get("type"), str | None):
        raise _refused("the type of the policy is not text")
    if "properties" not in policy:
        raise _refused('the policy has no "properties": add them, with namespace and impersonate')
    properties = policy["properties"]
    if properties is None:
        properties = {}
    if not isinstance(properties, dict):
        raise _refused("the properties of the policy are not an object")
    namespace = _property(properties, "namespace")
    return Policy(_namespace(_DEFAULT_NAMESPACE if namespace is None else namespace), _account(properties))


def _property(properties: dict[str, Any], name: str) -> str | None:
    value = properties.get(name)
    if value is not None and not isinstance(value, str):
        raise _refused(f"the property {name} of the policy is not text")
    return value


def _namespace(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise _refused(f"the property namespace of the policy, {quoted(name)}, is not a name of a namespace")
    return name


def _account(properties: dict[str, Any]) -> str | None:
    name = _property(properties, "impersonate")
    # A header would lose surrounding white space, and then name another user.
    if name and (len(name) > _ACCOUNT_MAX or not name.isprintable() or name != name.strip()):
        raise _refused(f"the property impersonate of the policy, {quoted(name)}, is not a name of an account")
    return name or None


def _refused(reason: str) -> Refusal:
    return Refusal(ErrorName.POLICY, reason)
