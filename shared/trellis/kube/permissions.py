"""Missing permissions of a service account, with the remedy.

In: 403 answers of the API server. Out: the missing permission; for runs of keys, the readiness of the service. Called
by services, which name the manifest to apply. Invariant: only RBAC denials are missing permissions: quotas and
admission also answer 403. Source: the messages of the RBAC authorizer of kube-apiserver, and of its escalation check
for Roles.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from trellis.kube.errors import Forbidden, KubeError
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

_REFUSED: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NOT_TO_GIVE: Final = re.compile(
    r'user "(?P<user>[^"]*)".* is attempting to grant RBAC permissions not currently held:\s*(?P<rules>.*)', re.DOTALL
)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Right:
    """A missing permission of an account. ``resource``: such as ``pods/log`` or ``leases.coordination.k8s.io``.

    ``namespace`` is "" for cluster-scoped resources, and for all namespaces. ``name``: of the object, if there is one;
    permissions that differ only in the name are equal.
    """

    user: str
    verb: str
    resource: str
    namespace: str
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return ``list pods in namespace team-a``."""
        place = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource} {place}"


def missing_right(error: BaseException) -> Right | None:
    """Return the missing permission that caused an error, None if the error has another cause."""
    if not isinstance(error, Forbidden):
        return None
    if found := _REFUSED.search(error.message):
        group = found["group"]
        resource, _, subresource = found["resource"].partition("/")
        named = (f"{resource}.{group}" if group else resource) + (f"/{subresource}" if subresource else "")
        return Right(found["user"], found["verb"], named, found["namespace"] or "", error.name)
    if found := _NOT_TO_GIVE.search(error.message):
        rules = " ".join(found["rules"].split())
        return Right(found["user"], f"grant (in {error.kind} {error.name})", rules, error.namespace)
    return None


def lacking(right: Right, remedy: str) -> str:
    """Return the message for a missing permission: account, verb, resource, namespace and remedy."""
    return f"{right.user} cannot {right}: {remedy}"


def describe_error(error: KubeError, remedy: str) -> str:
    """Return the message for an error: a missing permission with its remedy, or the text of any other error."""
    right = missing_right(error)
    return str(error) if right is None else lacking(right, remedy)


@dataclass(slots=True)
class MissingPermissions:
    """Missing permissions of runs of keys: each is logged once, and the service is not ready until it is granted.

    ``remedy`` returns the remedy for one of them.
    """

    health: Health
    remedy: Callable[[Right], str]
    _lacking: dict[Right, set[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def noted(self, key: str) -> Iterator[None]:
        """Record the result of the block, which is a run of a key; keys of several queues have to differ."""
        try:
            yield
        except Exception as error:
            self.failed(key, error)
            raise
        self.worked(key)

    def failed(self, key: str, error: BaseException) -> None:
        """Record the error of a run of a key; permissions that it lacked before, except this one, are granted now."""
        right = missing_right(error)
        if right is None:
            return
        self._settle(key, but=right)
        if right not in self._lacking:
            message = lacking(right, self.remedy(right))
            self.health.not_ready(_what(right), message)
            _log.warning("permission denied, retrying", error=message)
        self._lacking.setdefault(right, set()).add(key)

    def worked(self, key: str) -> None:
        """Record a successful run of a key."""
        if self._lacking:
            self._settle(key)

    def _settle(self, key: str, but: Right | None = None) -> None:
        for right in [item for item, keys in self._lacking.items() if item != but and key in keys]:
            self._lacking[right].discard(key)
            if not self._lacking[right]:
                del self._lacking[right]
                self.health.forget(_what(right))
                _log.info("permission granted", permission=str(right))


def _what(right: Right) -> str:
    return f"permission to {right}"


def allowed_to(error: KubeError) -> str:
    """Return the action of a refused call, such as ``watch pods in namespace a``."""
    place = f" in namespace {error.namespace}" if error.namespace else ""
    return f"{error.verb.lower()} {error.call.plural}{place}"
