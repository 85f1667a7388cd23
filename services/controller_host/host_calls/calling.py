"""Does what a guest asks of Kubernetes, as the guest's account: from the thread the guest runs in, in the event loop.

In: requests of ``trellis.call``. Out: answers as docs/controller-abi.md has them, spans, and word of a 403. Called by
guests, by way of ``Calls``, which each instance has one of. Invariants: whatever is asked, there is an answer, in
bounded time and of bounded length; no more requests than the limit reach a server; no content of an object, of Secrets
least of all, gets into a log or a span.
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
from controller_host.domain.calls import MOST_BYTES, Happening, Verb
from controller_host.host_calls.happenings import record
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
"""Requests of one call of the guest that reach no server: what it does not pay for with time it pays for with this."""
KNOWN_SUBRESOURCES: Final = frozenset(
    {"approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "scale", "status", "token"}
)
"""Those that Kubernetes has and that take a patch or an update; CustomResources have two of them."""
EVENTS_PER_SECOND: Final = 1.0
EVENTS_AT_ONCE: Final = 25.0
"""Events that a guest may have recorded: those that client-go lets a component record about an object at once."""
_LINE: Final = 256
_LONGEST_LINE: Final = 20.0
"""What the longest line there is costs, of ``_LINE`` characters each."""

_log = get_logger(__name__)


class CallFlood(Exception):  # noqa: N818 - says what happened
    """A guest does not stop asking for what it is refused."""


class Kinds(Protocol):
    """Finds out where the API server has a kind."""

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return it; raises KubeError (NotFound if there is no such kind)."""


@dataclass(eq=False)
class Calling:
    """Requests of all guests. ``acting_as``: Kubernetes, as a user; ``forbidden``: told the user of each 403."""

    acting_as: Callable[[str], Kube]
    kinds: Kinds
    telemetry: Telemetry
    forbidden: Callable[[str], None]
    log_lines: float = 100.0
    """That a guest may log in a second; one of many characters counts as several."""
    timings: CallTimings = field(default_factory=CallTimings)
    stopped: bool = False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def stop(self) -> None:
        """Begin no more requests; what is in progress ends by itself, or with the event loop."""
        self.stopped = True

    async def do(self, account: Account, asked: Verb | Happening, parent: Context | None) -> bytes:
        """Return the body of the API server's answer.

        Raises:
            KubeError, NotLeading: it was refused, or nobody answered.
        """
        name = f"call {asked.op} {asked.kind}" if isinstance(asked, Verb) else "call event"
        with within(self.telemetry, name, parent, {"trellis.controller": account.controller}) as span:
            op = asked.op if isinstance(asked, Verb) else "event"
            try:
                body = await self._do(account, asked)
            except KubeError as error:
                self._count(op, type(error).__name__)
                _mark(span, error)
                if isinstance(error, Forbidden):
                    self.forbidden(account.user)
                raise
            self._count(op, "ok")
            return body

    def _count(self, op: str, outcome: str) -> None:
        self.telemetry.metrics.controller_host_calls_total.labels(self.telemetry.service, op, outcome).inc()

    async def _do(self, account: Account, asked: Verb | Happening) -> bytes:
        kube = self.acting_as(account.user)
        if isinstance(asked, Happening):
            await record(kube, account, asked)
            return b""
        resource = await self.kinds.resource(asked.api_version, asked.kind)
        return await kube.ask(_call(asked, resource), _request(asked, resource), timeout=self.timings.request)


class Calls:
    """What one controller may ask for; ``call`` is called in the thread that its guest runs in."""

    def __init__(self, calling: Calling, account: Account, rate: float) -> None:
        self._calling = calling
        self._account = account
        self._bucket = TokenBucket(rate)
        self._events = TokenBucket(EVENTS_PER_SECOND, EVENTS_AT_ONCE)
        self._lines = Allowance(TokenBucket(calling.log_lines, max(calling.log_lines, _LONGEST_LINE)))
        self._left = self._calling.timings.call
        self._refusals = 0
        self._parent: Context | None = None
        self.asked = 0
        """How many requests there were, refused ones included."""
        self.refused = False
        """Whether the API server refused a request of this call: by a policy, a quota, a missing permission."""

    def begin(self, parent: Context | None) -> None:
        """Begin a call of the guest, whose requests are part of this trace."""
        self._left = self._calling.timings.call
        self._refusals = 0
        self.refused = False
        self._parent = parent

    def become(self, account: Account) -> None:
        """Ask as this account from now on."""
        self._account = account

    def limit(self, rate: float) -> None:
        """Allow so many requests a second from now on."""
        if self._bucket.rate != rate:
            self._bucket = TokenBucket(rate)

    def call(self, request: bytes) -> bytes:
        """Return the answer to a request, whatever that is.

        Raises:
            CallFlood: this call of the guest went on asking although it was refused again and again.
        """
        self.asked += 1
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
        except Exception as error:  # noqa: BLE001 - a guest must not see how the host is made, and must get an answer
            _log.error(
                "controller request failed with an internal error",
                controller=self._account.controller,
                error=type(error).__name__,
            )
            return failure(0, "Unavailable", "the host could not do this")
        finally:
            self._left -= time.monotonic() - began

    def log(self, level: int, text: str) -> None:
        """Log a line of the guest, if it has not logged too much of late."""
        left_out = self._lines.take(time.monotonic(), 1 + len(text) // _LINE)
        telemetry = self._calling.telemetry
        if left_out is None:
            telemetry.metrics.controller_log_lines_left_out_total.labels(telemetry.service).inc()
            return
        if left_out:
            _log.warning(
                "controller log lines dropped by the rate limit", controller=self._account.controller, lines=left_out
            )
        _log_of(level)("a controller says", controller=self._account.controller, text=text)

    def _answer(self, request: bytes, now: float) -> bytes:
        if not self._bucket.take(now):
            message = f"more than {self._bucket.rate:g} requests a second: spec.limits.hostCallsPerSecond"
            raise CallRefused("TooManyCalls", message)
        asked = calls.read(request, self._account.manager)
        if isinstance(asked, Happening) and not self._events.take(now):
            raise CallRefused("TooManyCalls", f"more than {EVENTS_PER_SECOND:g} Events a second, and no more at once")
        body = self._ask(asked, min(self._calling.timings.request, self._left))
        return b"{}" if isinstance(asked, Happening) else calls.answer(asked, body)

    def _ask(self, asked: Verb | Happening, seconds: float) -> bytes:
        if seconds <= 0:
            allowed = self._calling.timings.call
            raise CallRefused("Timeout", f"this call of the controller waited {allowed:g} s for its requests already")
        if self._calling.stopped:
            raise _stopping()
        work = self._calling.do(self._account, asked, self._parent)
        future: Future[bytes] = Future()
        try:
            self._calling.loop.call_soon_threadsafe(_begin, work, future)
        except RuntimeError:  # the loop is closed
            work.close()
            raise _stopping() from None
        try:
            return future.result(seconds + self._calling.timings.late)
        except TimeoutError:
            future.cancel()
            raise CallRefused("Timeout", f"no answer within {seconds:.0f} s") from None
        except (CancelledError, NotLeading):
            raise _stopping() from None
        except AnswerTooLarge:
            raise calls.too_large(f"more than {MOST_BYTES} bytes") from None


def _begin(work: Coroutine[object, object, bytes], future: Future[bytes]) -> None:
    """Begin work for a thread that waits for its future; once that is cancelled, so is the work.

    The work sets the future itself. ``run_coroutine_threadsafe`` does that in the turn of the event loop after its end.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(_do_into(future, work))

    def end(given_up: Future[bytes]) -> None:
        if given_up.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)

    future.add_done_callback(end)


async def _do_into(future: Future[bytes], work: Coroutine[object, object, bytes]) -> None:
    try:
        found = await work
    except asyncio.CancelledError:
        future.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():  # else nobody waits any more
            future.set_result(found)


def _stopping() -> CallRefused:
    return CallRefused("Unavailable", "this host stops: the controller goes on elsewhere")


def _failed(error: KubeError) -> bytes:
    """Return the API server's own words; of a call that was not answered those of our side."""
    return failure(error.status, error.reason, error.message)


def _mark(span: Span, error: KubeError) -> None:
    # Not the message: of what is invalid it shows the value.
    span.set_attribute("error.type", error.reason)
    span.set_status(StatusCode.ERROR, error.reason)


def _call(asked: Verb, resource: Resource) -> Call:
    # A word that a guest made up is no label of a metric: its series would stay for as long as the process lives.
    subresource = asked.subresource if asked.subresource in KNOWN_SUBRESOURCES else "other"
    plural = f"{resource.plural}/{subresource}" if asked.subresource else resource.plural
    verb = {"POST": "CREATE"}.get(asked.method, "LIST" if asked.op == "list" else asked.method)
    return Call(verb, resource.kind, plural, asked.namespace, asked.name)


def _request(asked: Verb, resource: Resource) -> HttpRequest:
    """Return the request to where the kind is served.

    Raises:
        CallRefused: it names no namespace for a kind that has one.
    """
    if resource.namespaced and not asked.namespace and asked.op != "list":
        field_name = "namespace" if asked.op in {"get", "patch", "delete"} else "object.metadata.namespace"
        raise CallRefused("InvalidRequest", f"{field_name}: needs the name of a namespace: {resource.kind} is in one")
    name = None if asked.collection else asked.name
    path = resource.path(asked.namespace or None, name, asked.subresource or None)
    return HttpRequest(asked.method, path, asked.query, asked.body, asked.content_type, most=MOST_BYTES)


def _log_of(level: int) -> Callable[..., object]:
    return {0: _log.debug, 2: _log.warning, 3: _log.error}.get(level, _log.info)
