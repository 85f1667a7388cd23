"""Reads a Secret as an impersonated user, and maps errors to the secrets protocol.

In: an identity and the name of a Secret. Out: the Secret from the API server, or a ``Refusal``. Called by
``answering``. Invariants: each read is authorized by the API server for that user at that moment, unless a cache is
configured; a user without permission cannot distinguish a missing Secret from a forbidden one; the cache is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from secrets_backend.domain.decide import Identity
from secrets_backend.domain.refusals import ErrorName, Refusal
from secrets_backend.domain.resources import account_of
from secrets_backend.permissions import roles_hint
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unavailable
from trellis.kube.permissions import missing_right
from trellis.kube.resources import SECRETS, Manifest

MOST_KEPT: Final = 256
LARGEST_KEPT: Final = 64 * 2**10
"""Bytes of the values of a Secret, in base64; larger ones are not cached."""
_IMPERSONATE: Final = "impersonate"


@dataclass(slots=True)
class Lookup:
    """``keep_seconds``: cache TTL of a Secret; 0 disables the cache."""

    kube: Kube
    keep_seconds: float = 0.0
    _kept: OrderedDict[tuple[str, str, str], tuple[float, Manifest]] = field(default_factory=OrderedDict)

    async def read(self, identity: Identity, name: str, seconds: float) -> Manifest:
        """Return a Secret.

        Raises:
            Refusal: ``UpstreamError``, with the API server's message or the missing permission.
        """
        key = (identity.user, identity.namespace, name)
        kept = self._find(key)
        if kept is not None:
            return kept
        try:
            kube = self.kube.acting_as(identity.user)
            found = await kube.get(SECRETS, name, identity.namespace, timeout=max(0.001, seconds))
        except KubeError as error:
            reason = describe_error(error, identity)
        else:
            self._keep(key, found)
            return found
        raise Refusal(ErrorName.UPSTREAM, reason)

    def sweep(self) -> None:
        """Drop expired Secrets, also without a request for them."""
        before = time.monotonic() - self.keep_seconds
        while self._kept and next(iter(self._kept.values()))[0] <= before:
            self._kept.popitem(last=False)

    async def run(self, seconds: float) -> None:
        """Drop expired Secrets every ``seconds`` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self.sweep()

    def _find(self, key: tuple[str, str, str]) -> Manifest | None:
        if not self.keep_seconds:
            return None
        self.sweep()
        found = self._kept.get(key)
        return None if found is None else found[1]

    def _keep(self, key: tuple[str, str, str], secret: Manifest) -> None:
        size = sum(len(value) for value in (secret.get("data") or {}).values())
        if not self.keep_seconds or size > LARGEST_KEPT:
            return
        self._kept.pop(key, None)
        self._kept[key] = (time.monotonic(), secret)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def describe_error(error: KubeError, identity: Identity) -> str:
    """Return the meaning of an error of the API server, for the user of the component."""
    right = missing_right(error)
    if right is not None and right.verb.startswith(_IMPERSONATE):
        return f"secrets_backend may not impersonate {_user_text(identity.user)}: give {roles_hint(identity)}"
    if isinstance(error, Forbidden | NotFound):
        return error.message
    if isinstance(error, Unauthorized):
        return "the API server of Kubernetes does not accept the token of secrets_backend: it is expired or revoked"
    if isinstance(error, Unavailable):
        return "the API server of Kubernetes does not answer"
    return f"{error.status} {error.reason}: {error.message}"


def _user_text(user: str) -> str:
    account = account_of(user)
    return f"user {user}" if account is None else f"ServiceAccount {'/'.join(account)}"
