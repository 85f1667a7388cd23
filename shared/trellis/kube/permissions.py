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
    """What an account was not allowed to do. ``resource`` is ``pods/log`` or ``leases.coordination.k8s.io``.

    ``namespace`` is "" for what has none, and for all of them together. ``name`` is that of the object, if it was one;
    of several objects it is the same right.
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
    """Return the right whose lack an error tells of, None if it tells of something else."""
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
    """Return the sentence about a missing right: who may not do what where, and what to do about it."""
    return f"{right.user} may not {right}: {remedy}"


def describe_error(error: KubeError, remedy: str) -> str:
    """Return what an error means: a missing right with its remedy; any other error says itself what it is."""
    right = missing_right(error)
    return str(error) if right is None else lacking(right, remedy)


@dataclass(slots=True)
class MissingPermissions:
    """The rights that runs of keys lack at present: each is said once, and the service is not ready in the meantime.

    ``remedy`` returns what is to be done about one.
    """

    health: Health
    remedy: Callable[[Right], str]
    _lacking: dict[Right, set[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def noted(self, key: str) -> Iterator[None]:
        """Note how a run of a key, which is the block, ends; keys of several queues are to differ."""
        try:
            yield
        except Exception as error:
            self.failed(key, error)
            raise
        self.worked(key)

    def failed(self, key: str, error: BaseException) -> None:
        """Note how a run of a key failed: the rights that it lacked before are there by now, or lacking still."""
        right = missing_right(error)
        if right is None:
            return
        self._settle(key, but=right)
        if right not in self._lacking:
            words = lacking(right, self.remedy(right))
            self.health.not_ready(_what(right), words)
            _log.warning("permission denied, retrying", error=words)
        self._lacking.setdefault(right, set()).add(key)

    def worked(self, key: str) -> None:
        """Note that a run of a key came to its end."""
        if self._lacking:
            self._settle(key)

    def _settle(self, key: str, but: Right | None = None) -> None:
        for right in [one for one, keys in self._lacking.items() if one != but and key in keys]:
            self._lacking[right].discard(key)
            if not self._lacking[right]:
                del self._lacking[right]
                self.health.forget(_what(right))
                _log.info("permission granted", right=str(right))


def _what(right: Right) -> str:
    return f"permission to {right}"


def allowed_to(error: KubeError) -> str:
    """Return what a refused call wanted, as ``list pods in namespace a``."""
    verb = "list" if error.verb in {"LIST", "WATCH"} else error.verb.lower()
    place = f" in namespace {error.namespace}" if error.namespace else ""
    return f"{verb} {error.call.plural}{place}"
