"""Responses of the console: JSON, security headers, metrics.

In: handlers. Out: a middleware and a signal. Called by ``app``. Invariants: the headers of each response restrict pages
to content of the console, forbid framing and disable caches; an error is ``{"error": {"what", "do"}}``; an unexpected
error reveals no details.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware
from opentelemetry.trace import SpanKind, StatusCode

from console.http.refusals import RefusedError, of_kube
from trellis.kube.errors import KubeError
from trellis.read_model.errors import AnswerError
from trellis.read_model.reading.traces import JaegerError
from trellis.telemetry import Telemetry, get_logger

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HTTP_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    404: ("not found", "docs/console/api.md lists the addresses"),
    405: ("method not allowed", "use GET"),
    413: ("the body is too long", "send a shorter one"),
}
_STREAM: Final = "text/event-stream"

_log = get_logger(__name__)


def json_response(document: object, *, status: int = 200) -> web.Response:
    """Return a JSON response that is not cached."""
    return web.Response(
        body=orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def refusal(error: RefusedError) -> web.Response:
    """Return the response for an error: cause and resolution."""
    response = json_response(error.document(), status=error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


async def put_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every response; a signal, so that streams get them before their first byte."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "trellis"


def answering(telemetry: Telemetry) -> Middleware:
    """Return the middleware that turns errors into responses, counts them, and traces requests except streams."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "none"
        name = f"{request.method} {route}"
        if route.endswith("stream"):
            response = await _answer(request, handler)
        else:
            # The route, not the path, as paths contain names of objects, and operators of Trellis read the traces.
            attributes = {"http.request.method": request.method, "http.route": route}
            with telemetry.tracer.start_as_current_span(name, kind=SpanKind.SERVER, attributes=attributes) as span:
                response = await _answer(request, handler)
                span.set_attribute("http.response.status_code", response.status)
                if response.status >= 500:
                    span.set_status(StatusCode.ERROR)
        telemetry.metrics.console_requests_total.labels(telemetry.service, route, str(response.status)).inc()
        return response

    return middleware


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return refusal(error)
    except JaegerError as error:
        return refusal(RefusedError(502, str(error), "retry; check TRELLIS_JAEGER_URL"))
    except AnswerError as error:
        return refusal(RefusedError(400, str(error), "correct the request"))
    except KubeError as error:
        return refusal(of_kube(error))
    except web.HTTPException as error:
        what, do = _HTTP_ERRORS.get(error.status, (error.reason, "docs/console/api.md describes the API"))
        return refusal(RefusedError(error.status, what, do))
    except (ConnectionError, TimeoutError):
        raise  # the client is disconnected
    except Exception:  # noqa: BLE001 - the viewer receives no details of any unexpected error
        _log.exception("request failed", route=request.match_info.route.name)
        return refusal(RefusedError(500, "internal error", "see the log of the console"))
