"""Errors of the API server as exceptions that name the object.

In: a call and the Status of the server (or a network failure). Out: a ``KubeError``. Called by ``trellis.kube.client``;
caught by services. Invariant: no message contains credentials, and each names verb, kind and object. Source: the Status
object of the Kubernetes API conventions, "Response Status Kind".
"""

# ruff: noqa: N818 - these names are the server's own reasons

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trellis.installer_api.parse_int import whole

LONGEST_WAIT: Final = 60.0
"""Maximum of Retry-After in seconds: proxies return an hour in an outage of seconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: HTTP verb, kind, and namespace and name of the object ("" if there is none).

    ``group``: API group of a list or watch, "" for those of Kubernetes' core and for other requests.
    """

    verb: str
    kind: str
    plural: str
    namespace: str = ""
    name: str = ""
    group: str = ""

    @property
    def resource(self) -> str:
        """Name of the kind for kubectl: ``hosts.runtime.wasmcloud.dev``, which no other group has."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        """Return ``PATCH Node node-1`` or ``GET Job trellis-system/job-1``."""
        place = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (self.verb, self.kind, place) if part)


class KubeError(Exception):
    """A failed call.

    ``status`` is the HTTP status (0 without an answer), ``reason`` the server's CamelCase reason, ``message`` its text.
    """

    def __init__(self, call: Call, *, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.call = call
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        label = f"{status} {reason}" if status else reason
        super().__init__(f"cannot {call}: {label}: {message}")

    @property
    def verb(self) -> str:
        """HTTP verb of the call."""
        return self.call.verb

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return self.call.kind

    @property
    def namespace(self) -> str:
        """Namespace of the object, "" if it has none."""
        return self.call.namespace

    @property
    def name(self) -> str:
        """Name of the object, "" for a whole list."""
        return self.call.name


class NotFound(KubeError):
    """404: the object, its namespace or its kind does not exist."""


class AlreadyExists(KubeError):
    """409 on create: another object has the name."""


class Conflict(KubeError):
    """409: the object is not the one that was read (uid or resourceVersion differ)."""


class PatchTestFailed(Conflict):
    """A ``test`` of a JSON patch did not hold: the object changed since it was read."""


class Gone(KubeError):
    """410: the resource version or the continue token is too old; a new list is required."""


class Invalid(KubeError):
    """400, 413, 415 or 422: the server does not accept this body; repeating it is useless."""


class Forbidden(KubeError):
    """403: the account lacks the permission."""


class Unauthorized(KubeError):
    """401: the credentials are not accepted, even after they were re-read."""


class TooManyRequests(KubeError):
    """429: the server requests a delay; ``retry_after`` is in seconds."""


class Unavailable(KubeError):
    """The server is unreachable, answered 5xx, or exceeded the time budget. A write may have succeeded."""


class AnswerTooLarge(KubeError):
    """The answer exceeds the maximum size; a write has succeeded."""


class NotLeading(Exception):
    """A write was refused by the client: this process no longer holds the lease."""


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def error_from(call: Call, status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """Return the exception for an answer with an HTTP status of 400 or more.

    ``body`` is a Status object, or any text of a proxy.
    """
    found = _status_object(body)
    reason = str(found.get("reason") or _reason_of(status))
    message = str(found.get("message") or body[:300].decode("utf-8", "replace").strip() or "no explanation given")
    error = _BY_STATUS.get(status, Unavailable)
    if reason == "AlreadyExists":
        error = AlreadyExists
    elif _is_about_the_uid(found):
        # The server rejects a patch with another uid as invalid: the object was replaced since it was read.
        error = Conflict
    return error(call, status=status, reason=reason, message=message, retry_after=_retry_after(found, headers))


def error_from_event(call: Call, status: Mapping[str, Any]) -> KubeError:
    """Return the exception for an ``ERROR`` event of a watch, whose object is a Status."""
    code = status.get("code")
    code = code if isinstance(code, int) and not isinstance(code, bool) else 500
    return error_from(call, code, orjson.dumps(status), {})


def unavailable(call: Call, reason: str) -> Unavailable:
    """Return the exception for a call without an answer."""
    return Unavailable(call, status=0, reason="Unavailable", message=reason)


def too_large(call: Call, most: int) -> AnswerTooLarge:
    """Return the exception for an answer of more than ``most`` bytes."""
    message = f"the answer has more than {most} bytes"
    return AnswerTooLarge(call, status=0, reason="TooLarge", message=message)


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    details = status.get("details")
    return details if isinstance(details, dict) else {}


def _is_about_the_uid(status: Mapping[str, Any]) -> bool:
    causes = _details(status).get("causes")
    rows = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    return status.get("reason") == "Invalid" and any(row.get("field") == "metadata.uid" for row in rows)


def _reason_of(status: int) -> str:
    error = _BY_STATUS.get(status)
    return error.__name__ if error else "ServerError"


def _retry_after(status: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    seconds = _details(status).get("retryAfterSeconds")
    value = str(seconds) if seconds else headers.get("Retry-After", "")
    number = whole(value)
    return None if number is None else min(float(number), LONGEST_WAIT)
