"""Answers a request for a secret: decrypt, identify, read the Secret as that user, encrypt the answer.

In: a request, the grant of its connection. Out: the answer, and a record for audit, metrics and traces. Called by
``serving``. Invariants: every request is answered or counted as dropped; an error affects only its own answer; no log
line, metric, span or exception contains a value, token or key.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from opentelemetry.trace import Tracer, get_current_span

from secrets_backend.audit import Audit
from secrets_backend.changes import Changes
from secrets_backend.domain.decide import ConnectionGrant, Identity, identify
from secrets_backend.domain.limits import Limits
from secrets_backend.domain.policy import Policy
from secrets_backend.domain.protocol import Opened, Request, open_request, seal_reply, success
from secrets_backend.domain.refusals import ErrorName, Refusal
from secrets_backend.key import Key
from secrets_backend.lookup import Lookup
from secrets_backend.metrics import SecretMetrics
from secrets_backend.timings import Timings
from trellis.events.secrets import SecretDenied, SecretGranted
from trellis.kube.resources import Manifest
from trellis.lattice.connection.requests import AnswerLost, IncomingRequest
from trellis.lattice.domain.errors import TooLargeError
from trellis.telemetry import context_from, get_logger

GRANTED: Final = "granted"
LATE: Final = "late"
_MESSAGE_MOST: Final = 1024
_LATTICES: Final = 8
"""Maximum number of lattices of a connection in a span."""
_LATE_ANSWER: Final = Refusal(ErrorName.OTHER, "secrets_backend did not come to this request in time: retry").body()

_log = get_logger(__name__)
GrantOf = Callable[[], ConnectionGrant]


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that answer a request.

    ``users``: those that may be impersonated by name; ``now``: Unix seconds, for the validity of tokens.
    """

    tracer: Tracer
    key: Key
    lookup: Lookup
    limits: Limits
    audit: Audit
    changes: Changes
    metrics: SecretMetrics
    backend: str
    users: frozenset[str]
    timings: Timings
    now: Callable[[], float]


class Answering:
    """Answers the requests of all connections."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._reported_at = -parts.timings.report
        self._unreported = 0

    async def answer(self, incoming: IncomingRequest, grant_of: GrantOf) -> None:
        """Answer a request; raises only the cancellation of its task."""
        with self._parts.tracer.start_as_current_span(
            "answer secret",
            context=context_from(None),  # hosts send no trace context
            record_exception=False,  # its text may contain a value
            set_status_on_exception=False,
        ) as span:
            outcome = await self._in_time(incoming, grant_of)
            span.set_attribute("trellis.outcome", outcome)

    async def _in_time(self, incoming: IncomingRequest, grant_of: GrantOf) -> str:
        """Return the outcome: ``granted``, the protocol's error, ``late``, or why there was no answer."""
        until = incoming.at + self._parts.timings.answer
        if (left := until - time.monotonic()) <= 0:
            return await self._late(incoming, "expired")
        try:
            async with asyncio.timeout(left):
                outcome = await self._answer(incoming, grant_of, until)
        except TimeoutError:
            return await self._late(incoming, "timeout")
        except AnswerLost as error:
            _log.debug("answer could not be sent", reason=str(error))
            return self._parts.metrics.dropped("lost")
        except Exception as error:  # noqa: BLE001 - a failure affects only its request; its text may contain a value
            _log.error("request failed with an internal error", error=type(error).__name__, where=_where(error))
            return self._parts.metrics.dropped("failed")
        self._parts.metrics.answered(outcome, time.monotonic() - incoming.at)
        return outcome

    async def _late(self, incoming: IncomingRequest, reason: str) -> str:
        """Answer that the time limit is exceeded, or count that: hosts wait a little longer than the limit."""
        try:
            async with asyncio.timeout(self._parts.timings.late):
                await incoming.answer(_LATE_ANSWER)
        except (AnswerLost, TooLargeError, TimeoutError):
            return self._parts.metrics.dropped(reason)
        self._parts.metrics.answered(LATE, time.monotonic() - incoming.at)
        return LATE

    async def _answer(self, incoming: IncomingRequest, grant_of: GrantOf, until: float) -> str:
        opened: Opened | None = None
        identity: Identity | None = None
        try:
            opened = await self._open(incoming)
            _describe(opened, grant := grant_of())
            self._limit(opened, grant)
            request = opened.request()
            identity = identify(request.policy, request.entity, grant, self._parts.users)
            # Less than the remaining time, so that a missing answer of the API server can still be reported.
            secret = await self._parts.lookup.read(identity, request.secret, (until - time.monotonic()) * 0.9)
            await self._give(incoming, request, secret)
        except Refusal as refused:
            # Without its frames: they refer to this one, with the Secret, until the garbage collector runs.
            refusal = refused.with_traceback(None)
        except TooLargeError as error:
            message = f"the answer is too large: {error} (bytes that are not text take up to four times their size)"
            refusal = Refusal(ErrorName.OTHER, message)
        except (AnswerLost, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - a failure affects only its request; its text may contain a value
            _log.error("request failed with an internal error", error=type(error).__name__, where=_where(error))
            refusal = Refusal(ErrorName.OTHER, "secrets_backend failed to answer this request: see its log")
        else:
            self._granted(opened, identity, secret, grant)
            return GRANTED
        await incoming.answer(refusal.body())
        if opened is None:
            self._unreadable(refusal)
        else:
            self._denied(opened, identity, refusal, grant_of())
        return refusal.error.value

    async def _open(self, incoming: IncomingRequest) -> Opened:
        key = self._parts.key
        try:
            return open_request(incoming.headers, incoming.payload, key.ring, self._parts.now())
        except Refusal as refusal:
            # Another replica may have returned a newer key.
            if refusal.error is not ErrorName.DECRYPTION or not await key.invalidate():
                raise
        return open_request(incoming.headers, incoming.payload, key.ring, self._parts.now())

    def _limit(self, opened: Opened, grant: ConnectionGrant) -> None:
        """Refuse requests above the rate, before the policy is checked: invalid ones count, too."""
        # Also by the host groups of the connection: a false claim of an entity on another NATS leaves its rate alone.
        if not self._parts.limits.allows((grant.groups, opened.entity.subject), time.monotonic()):
            raise Refusal(
                ErrorName.OTHER,
                f"{opened.entity.subject} sends too many requests: more than {self._parts.limits.rate:g} per second "
                "(TRELLIS_SECRETS_ENTITY_RATE)",
            )

    async def _give(self, incoming: IncomingRequest, request: Request, secret: Manifest) -> None:
        payload, headers = seal_reply(request, success(secret, request.field))
        await incoming.answer(payload, headers)

    def _denied(self, opened: Opened, identity: Identity | None, refusal: Refusal, grant: ConnectionGrant) -> None:
        event = SecretDenied(
            **_about(opened, identity, self._parts.backend),
            error=refusal.error.value,
            message=refusal.message[:_MESSAGE_MOST],
        )
        self._parts.audit.record(event, grant.groups)

    def _granted(self, opened: Opened, identity: Identity, secret: Manifest, grant: ConnectionGrant) -> None:
        metadata = secret["metadata"]
        event = SecretGranted(
            **_about(opened, identity, self._parts.backend),
            uid=str(metadata["uid"]),
            resource_version=str(metadata["resourceVersion"]),
            rule=identity.rule,
        )
        self._parts.audit.record(event, grant.groups)
        self._parts.changes.remember(event, grant.groups)

    def _unreadable(self, refusal: Refusal) -> None:
        """Log requests without identity at a limited rate, as any client of the NATS can send them at any rate."""
        now = time.monotonic()
        self._unreported += 1
        if now - self._reported_at >= self._parts.timings.report:
            _log.warning("unidentified requests refused", last=str(refusal), count=self._unreported)
            self._reported_at, self._unreported = now, 0


def _describe(opened: Opened, grant: ConnectionGrant) -> None:
    """Add the sender to the span; of its place only the lattices of the connection are known."""
    span = get_current_span()
    if not span.is_recording():
        return
    lattices = [f"{namespace}/{lattice}" for namespace, lattice in sorted(grant.groups)]
    span.set_attribute("trellis.lattices", lattices[:_LATTICES])
    span.set_attribute("trellis.entity", opened.entity.subject)
    if opened.application is not None:
        span.set_attribute("trellis.application", opened.application)


def _about(opened: Opened, identity: Identity | None, backend: str) -> dict[str, str | None]:
    """Return the fields of a request for events, without parts that are not valid names."""
    return {
        "namespace": opened.policy.namespace if isinstance(opened.policy, Policy) else "",
        "name": opened.secret if isinstance(opened.secret, str) else "",
        "field": opened.field if isinstance(opened.field, str) else "",
        "application": opened.application,
        "entity": opened.entity.subject,
        "issuer": opened.entity.issuer,
        "host": opened.host.subject,
        "backend": backend,
        "user": identity.user if identity is not None else "",
    }


def _where(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-4:]]
