"""What the console answers when it does not do what it was asked: what it is, and what to do about it.

Pure. Raised by whatever answers a request, written as JSON by ``answers``. Invariant: no text has a token, a session or
another viewer's name in it.
"""

from __future__ import annotations

from typing import Any

from trellis.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from trellis.kube.permissions import allowed_to, missing_right


class RefusedError(Exception):
    """A request that gets ``{"error": {"what": …, "do": …}}``. ``status`` is of HTTP; ``retry_after`` in seconds."""

    def __init__(self, status: int, what: str, do: str, *, retry_after: int | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.do = do
        self.retry_after = retry_after

    def document(self) -> dict[str, Any]:
        """Return the body."""
        return {"error": {"what": self.what, "do": self.do}}


def bad(what: str, do: str) -> RefusedError:
    """Return the answer to a request that makes no sense."""
    return RefusedError(400, what, do)


def log_in() -> RefusedError:
    """Return the answer to who is nobody (any more)."""
    return RefusedError(401, "you are not logged in, or no longer", "log in with a token of the cluster")


def not_allowed(what: str) -> RefusedError:
    """Return the answer to who may not; ``what`` is such as ``get node n1``."""
    return RefusedError(403, f"not allowed to {what}", "ask for the right, or look as somebody who has it")


def busy(what: str, seconds: int = 2) -> RefusedError:
    """Return the answer where a bound is reached for now."""
    return RefusedError(429, what, f"try again in {seconds} s", retry_after=seconds)


def of_kube(error: KubeError) -> RefusedError:
    """Return the answer where the API server refused the viewer, or did not answer."""
    match error:
        case Unauthorized():
            return log_in()
        case Forbidden():
            right = missing_right(error)
            return not_allowed(allowed_to(error) if right is None else f"{right}")
        case NotFound():
            return RefusedError(404, f"there is no {error.kind} {error.name}".rstrip(), "is it gone by now?")
        case _:
            what = f"the API server did not answer as it should: {error.reason}"
            return RefusedError(502, what, "try again; `trellis check` says whether the cluster is well")
