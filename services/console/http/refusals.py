"""Error responses of the console: the cause and the resolution.

Pure. Raised by request handlers, written as JSON by ``answers``. Invariant: no text contains a token, a session or the
name of another viewer.
"""

from __future__ import annotations

from typing import Any

from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from trellis.kube.permissions import allowed_to, missing_right


class RefusedError(Exception):
    """A request that gets ``{"error": {"what": …, "do": …}}``. ``status``: HTTP; ``retry_after``: seconds."""

    def __init__(self, status: int, what: str, do: str, *, retry_after: int | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.do = do
        self.retry_after = retry_after

    def document(self) -> dict[str, Any]:
        """Return the body of the response."""
        return {"error": {"what": self.what, "do": self.do}}


def bad(what: str, do: str) -> RefusedError:
    """Return the error for an invalid request."""
    return RefusedError(400, what, do)


def log_in() -> RefusedError:
    """Return the error for a request without a valid session."""
    return RefusedError(401, "no valid session", "log in with a token of the cluster")


def not_allowed(what: str) -> RefusedError:
    """Return the error for a missing permission; ``what`` is ``get node n1``, for example."""
    return RefusedError(403, f"not allowed to {what}", "request the permission, or log in as another account")


def busy(what: str, seconds: int = 2) -> RefusedError:
    """Return the error for a limit that is reached temporarily."""
    return RefusedError(429, what, f"retry in {seconds} s", retry_after=seconds)


def of_kube(error: KubeError) -> RefusedError:
    """Return the error for a failed request to the API server."""
    match error:
        case Unauthorized():
            return log_in()
        case Forbidden():
            right = missing_right(error)
            return not_allowed(allowed_to(error) if right is None else f"{right}")
        case NotFound():
            return RefusedError(
                404, f"{error.kind} {error.name} not found".replace("  ", " "), "it may have been deleted"
            )
        case _:
            what = f"the API server failed: {error.reason}"
            return RefusedError(502, what, "retry; `trellis check` checks the cluster")
