"""Sends requests of guests to Kubernetes as the guest's account: from the guest's thread, in the event loop.

In: requests of ``trellis.call``. Out: answers in the format of docs/controller-abi.md, spans, and notifications of a
403. Called by guests through ``Calls``, one per instance. Invariants: every request gets an answer, in bounded time and
of bounded length; a server receives at most the limited number of requests; logs and spans contain no content of
objects, in particular of Secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode

from controller_host.domain import calls
from controller_host.domain.accounts import Account
from controller_host.domain.call_fields import CallRefused, failure
from controller_host.domain.calls import MOST_BYTES, GuestEvent, Verb
from controller_host.host_calls.guest_events import record
from controller_host.scheduler.turns import Allowance
from controller_host.timings import CallTimings
from trellis.kube.client import Kube
from trellis.kube.errors import AnswerTooLarge, Call, Forbidden, KubeError, NotLeading
from trellis.kube.refusals import is_refused
from trellis.kube.resources import Resource
from trellis.kube.transport import HttpRequest
from trellis.limits.token_bucket import TokenBucket
from trellis.telemetry import Telemetry, get_logger, within

MOST_REFUSALS: Final = 1000
"""Maximum number of rejected requests in one call of the guest, because their time does not count."""
KNOWN_SUBRESOURCES: Final = frozenset(
    {"approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "scale", "status", "token"}
)
"""Subresources of Kubernetes that support patch or update; CustomResources have two of them."""
EVENTS_PER_SECOND: Final = 1.0
EVENTS_AT_ONCE: Final = 25.0
"""Burst of Events of a guest: the burst per object of a component in client-go."""
_LINE: Final = 256
_LONGEST_LINE: Final = 20.0
"""Weight of the longest line, in units of ``_LINE`` characters."""

_log = get_logger(__name__)


class CallFlood(Exception):  # noqa: N818 - named after the outcome
    """A guest continues to send requests that are rejected."""


class Kinds(Protocol):
    """Discovery of kinds."""

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind; raises KubeError (NotFound for an unknown kind)."""


@dataclass(eq=False)
class Calling:
    """Requests of all guests. ``acting_as``: client that impersonates a user; ``forbidden``: called for each 403."""

    acting_as: Callable[[str], Kube]
    kinds: Kinds
    telemetry: Telemetry
    forbidden: Callable[[str], None]
    log_lines: float = 100.0
    """Maximum log lines of a guest per second; a long line counts as several."""
    timings: CallTimings = field(default_factory=CallTimings)
    stopped: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def stop(self) -> None:
        """Reject further requests; requests in progress end by themselves, or with the event loop."""
        self.stopped = True

    async def do(self, account: Account, request: Verb | GuestEvent, parent: Context | None) -> bytes:
        """Return the body of the API server's response.

        Raises:
            KubeError, NotLeading: the request was refused, or the API server did not answer.
        """
        name = f"call {request.op} {request.kind}" if isinstance(request, Verb) else "call event"
        with within(self.telemetry, name, parent, {"trellis.controller": account.controller}) as span:
            op = request.op if isinstance(request, Verb) else "event"
            try:
                body = await self._do(account, request)
            except KubeError as error:
                self._count(op, type(error).__name__)
                _set_error(span, error)
                if isinstance(error, Forbidden):
                    self.forbidden(account.user)
                raise
            self._count(op, "ok")
            return body

    def _count(self, op: str, outcome: str) -> None:
        self.telemetry.metrics.controller_host_calls_total.labels(self.telemetry.service, op, outcome).inc()

    async def _do(self, account: Account, request: Verb | GuestEvent) -> bytes:
        kube = self.acting_as(account.user)
        if isinstance(request, GuestEvent):
            await record(kube, account, request)
            return b""
        resource = await self.kinds.resource(request.api_version, request.kind)
        return await kube.ask(_call(request, resource), _request(request, resource), timeout=self.timings.request)


class Calls:
    """Requests of one controller; ``call`` is called in the thread of its guest."""

    def __init__(self, calling: Calling, account: Account, rate: float) -> None:
        self._calling = calling
        self._account = account
        self._bucket = TokenBucket(rate)
        self._events = TokenBucket(EVENTS_PER_SECOND, EVENTS_AT_ONCE)
        self._lines = Allowance(TokenBucket(calling.log_lines, max(calling.log_lines, _LONGEST_LINE)))
        self._left = self._calling.timings.call
        self._refusals = 0
        self._parent: Context | None = None
        self.requests = 0
        """Number of requests, including rejected ones."""
        self.refused = False
        """True if the API server refused a request of this call: by a policy, a quota, a missing permission."""

    def begin(self, parent: Context | None) -> None:
        """Start a call of the guest; ``parent`` is the trace context of its requests."""
        self._left = self._calling.timings.call
        self._refusals = 0
        self.refused = False
        self._parent = parent

    def become(self, account: Account) -> None:
        """Set the account of further requests."""
        self._account = account

    def limit(self, rate: float) -> None:
        """Set the maximum rate of further requests, per second."""
        if self._bucket.rate != rate:
            self._bucket = TokenBucket(rate)

    def call(self, request: bytes) -> bytes:
        """Return the answer to any request.

        Raises:
            CallFlood: this call of the guest sent more than ``MOST_REFUSALS`` rejected requests.
        """
        self.requests += 1
        began = time.monotonic()
        try:
            return self._answer(request, began)
        except CallRefused as refused:
            self._refusals += 1
            if self._refusals > MOST_REFUSALS:
                raise CallFlood from None
            return refused.answer()
        except KubeError as error:
            self.refused = self.refused or is_refused(error)
            return _failed(error)
        except Exception as error:  # noqa: BLE001 - a guest must get an answer without internals of the host
            _log.error(
                "controller request failed with an internal error",
                controller=self._account.controller,
                error=type(error).__name__,
            )
            return failure(0, "Unavailable", "the request failed with an internal error of the host")
        finally:
            self._left -= time.monotonic() - began

    def log(self, level: int, text: str) -> None:
        """Log a line of the guest, unless it exceeds the rate limit."""
        left_out = self._lines.take(time.monotonic(), 1 + len(text) // _LINE)
        telemetry = self._calling.telemetry
        if left_out is None:
            telemetry.metrics.controller_log_lines_left_out_total.labels(telemetry.service).inc()
            return
        if left_out:
            _log.warning(
                "controller log lines dropped by the rate limit", controller=self._account.controller, lines=left_out
            )
        _log_of(level)("log line of a controller", controller=self._account.controller, text=text)

    def _answer(self, request: bytes, now: float) -> bytes:
        if not self._bucket.take(now):
            message = f"more than {self._bucket.rate:g} requests per second: spec.limits.hostCallsPerSecond"
            raise CallRefused("TooManyCalls", message)
        parsed = calls.read(request, self._account.manager)
        if isinstance(parsed, GuestEvent) and not self._events.take(now):
            raise CallRefused("TooManyCalls", f"more than {EVENTS_PER_SECOND:g} Events per second: send fewer Events")
        body = self._ask(parsed, min(self._calling.timings.request, self._left))
        return b"{}" if isinstance(parsed, GuestEvent) else calls.answer(parsed, body)

    def _ask(self, request: Verb | GuestEvent, seconds: float) -> bytes:
        if seconds <= 0:
            allowed = self._calling.timings.call
            raise CallRefused("Timeout", f"the requests of this call already used the maximum of {allowed:g} s")
        if self._calling.stopped:
            raise _shutting_down()
        work = self._calling.do(self._account, request, self._parent)
        future: Future[bytes] = Future()
        try:
            self._calling.loop.call_soon_threadsafe(_begin, work, future)
        except RuntimeError:  # the loop is closed
            work.close()
            raise _shutting_down() from None
        try:
            return future.result(seconds + self._calling.timings.late)
        except TimeoutError:
            future.cancel()
            raise CallRefused("Timeout", f"no answer within {seconds:.0f} s") from None
        except (CancelledError, NotLeading):
            raise _shutting_down() from None
        except AnswerTooLarge:
            raise calls.too_large(f"more than {MOST_BYTES} bytes") from None


def _begin(work: Coroutine[object, object, bytes], future: Future[bytes]) -> None:
    """Start work for a thread that waits for its future; a cancelled future cancels the work.

    The work sets the future itself: ``run_coroutine_threadsafe`` would set it one turn of the event loop later.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(_do_into(future, work))

    def end(ended: Future[bytes]) -> None:
        if ended.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)

    future.add_done_callback(end)


async def _do_into(future: Future[bytes], work: Coroutine[object, object, bytes]) -> None:
    try:
        found = await work
    except asyncio.CancelledError:
        future.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - raised in the waiting thread
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():  # otherwise no thread waits
            future.set_result(found)


def _shutting_down() -> CallRefused:
    return CallRefused("Unavailable", "this host is shutting down: another replica continues the controller")


def _failed(error: KubeError) -> bytes:
    """Return the API server's error; for a request without a response, the error of the client."""
    return failure(error.status, error.reason, error.message)


def _set_error(span: Span, error: KubeError) -> None:
    # Without the message, which can contain invalid values.
    span.set_attribute("error.type", error.reason)
    span.set_status(StatusCode.ERROR, error.reason)


def _call(request: Verb, resource: Resource) -> Call:
    # Text of a guest must not become the label of a metric: its time series would exist until the process ends.
    subresource = request.subresource if request.subresource in KNOWN_SUBRESOURCES else "other"
    plural = f"{resource.plural}/{subresource}" if request.subresource else resource.plural
    verb = {"POST": "CREATE"}.get(request.method, "LIST" if request.op == "list" else request.method)
    return Call(verb, resource.kind, plural, request.namespace, request.name)


def _request(request: Verb, resource: Resource) -> HttpRequest:
    """Return the HTTP request for the resource.

    Raises:
        CallRefused: the namespace of a namespaced kind is missing.
    """
    if resource.namespaced and not request.namespace and request.op != "list":
        field_name = "namespace" if request.op in {"get", "patch", "delete"} else "object.metadata.namespace"
        raise CallRefused("InvalidRequest", f"{field_name}: needs a namespace: {resource.kind} is namespaced")
    name = None if request.collection else request.name
    path = resource.path(request.namespace or None, name, request.subresource or None)
    return HttpRequest(request.method, path, request.query, request.body, request.content_type, most=MOST_BYTES)


def _log_of(level: int) -> Callable[..., object]:
    return {0: _log.debug, 2: _log.warning, 3: _log.error}.get(level, _log.info)
