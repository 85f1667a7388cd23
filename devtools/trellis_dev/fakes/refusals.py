"""Places and refusals, for the API server in memory.

Pure values. Called by the other ``trellis.kube.fake_*`` modules. The words are those of a kube-apiserver.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.kube.resources import Manifest, Resource


class RefusedError(Exception):
    """An answer other than success: HTTP status, the server's reason and words."""

    def __init__(self, status: int, reason: str, message: str, *, field_at_fault: str | None = None) -> None:
        self.body: Manifest = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": reason,
            "message": message,
        }
        if field_at_fault:
            self.body["details"] = {"causes": [{"field": field_at_fault}]}
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Target:
    """One object's place; ``namespace`` is "" for kinds without."""

    res: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Place in the table of the kind."""
        return (self.namespace, self.name)

    def missing(self) -> RefusedError:
        """Return the answer for an object that is not there."""
        return RefusedError(404, "NotFound", f'{self._label} "{self.name}" not found')

    def conflict(self, message: str) -> RefusedError:
        """Return the answer for an object that is not the one that was read."""
        return RefusedError(409, "Conflict", f'Operation cannot be fulfilled on {self._label} "{self.name}": {message}')

    def invalid(self, why: str, *, field_at_fault: str | None = None) -> RefusedError:
        """Return the answer for a body that this kind does not accept."""
        message = f'{self.res.kind} "{self.name}" is invalid: {why}'
        return RefusedError(422, "Invalid", message, field_at_fault=field_at_fault)

    def immutable_uid(self, uid: str) -> RefusedError:
        """Return the answer for a patch that carries another uid."""
        path = "metadata.uid"
        return self.invalid(f'{path}: Invalid value: "{uid}": field is immutable', field_at_fault=path)

    def exists(self, *, deleting: bool = False) -> RefusedError:
        """Return the answer for a name that is taken."""
        what = "object is being deleted: " if deleting else ""
        return RefusedError(409, "AlreadyExists", f'{what}{self._label} "{self.name}" already exists')

    def terminating(self) -> RefusedError:
        """Return the answer for a namespace that takes nothing new."""
        message = (
            f'{self._label} "{self.name}" is forbidden: unable to create new content in namespace {self.namespace} '
            "because it is being terminated"
        )
        return RefusedError(403, "Forbidden", message)

    @property
    def _label(self) -> str:
        return f"{self.res.plural}.{self.res.group}" if self.res.group else self.res.plural
