"""Targets and error responses, for the in-memory API server.

Pure values. Called by the other ``trellis_dev.fakes`` modules. The messages are those of a kube-apiserver.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.kube.resources import Manifest, Resource


class RefusedError(Exception):
    """An error response: HTTP status, reason and message of the server."""

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
    """Identity of one object; ``namespace`` is "" for cluster-scoped kinds."""

    res: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Key in the table of the kind."""
        return (self.namespace, self.name)

    def missing(self) -> RefusedError:
        """Return the response for an object that does not exist."""
        return RefusedError(404, "NotFound", f'{self._label} "{self.name}" not found')

    def conflict(self, message: str) -> RefusedError:
        """Return the response for an object that has changed since it was read."""
        return RefusedError(409, "Conflict", f'Operation cannot be fulfilled on {self._label} "{self.name}": {message}')

    def invalid(self, reason: str, *, field_at_fault: str | None = None) -> RefusedError:
        """Return the response for a body that this kind does not accept."""
        message = f'{self.res.kind} "{self.name}" is invalid: {reason}'
        return RefusedError(422, "Invalid", message, field_at_fault=field_at_fault)

    def immutable_uid(self, uid: str) -> RefusedError:
        """Return the response for a patch with a different uid."""
        path = "metadata.uid"
        return self.invalid(f'{path}: Invalid value: "{uid}": field is immutable', field_at_fault=path)

    def exists(self, *, deleting: bool = False) -> RefusedError:
        """Return the response for a name that is in use."""
        what = "object is being deleted: " if deleting else ""
        return RefusedError(409, "AlreadyExists", f'{what}{self._label} "{self.name}" already exists')

    def terminating(self) -> RefusedError:
        """Return the response for a namespace that accepts no new objects."""
        message = (
            f'{self._label} "{self.name}" is forbidden: unable to create new content in namespace {self.namespace} '
            "because it is being terminated"
        )
        return RefusedError(403, "Forbidden", message)

    @property
    def _label(self) -> str:
        return f"{self.res.plural}.{self.res.group}" if self.res.group else self.res.plural
