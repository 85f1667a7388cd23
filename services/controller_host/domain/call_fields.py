"""Validation of the fields of a guest's request; an error names the field.

Pure: parsed JSON of a guest in, valid values out, or ``CallRefused``. Called by ``calls``.
Invariant: a path contains text of a guest only if it is a valid name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import orjson

Fields: TypeAlias = Mapping[str, Any]

_LONGEST_NAME: Final = 253
_API_VERSION = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?v[a-z0-9]{1,62}")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_SUBRESOURCE = re.compile(r"[a-z]{1,63}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class CallRefused(Exception):  # noqa: N818 - named after the outcome, as the reasons of the ABI
    """A rejected request. ``reason``: ``InvalidRequest``, ``TooManyCalls``, ``TooLarge``, ``Timeout``…"""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")

    def answer(self) -> bytes:
        """Return the answer for the guest."""
        return failure(0, self.reason, self.message)


def failure(code: int, reason: str, message: str) -> bytes:
    """Return an answer with an error; code 0: the request was not sent, or no server answered."""
    return orjson.dumps({"error": {"code": code, "reason": reason, "message": message}})


def invalid(name: str, what: str) -> CallRefused:
    """Return the error for an invalid field; ``what`` describes the valid values."""
    return CallRefused("InvalidRequest", f"{name}: {what}")


def object_of(fields: Fields) -> dict[str, Any]:
    """Return the Kubernetes object in ``object``, with its metadata; raises CallRefused."""
    found = fields.get("object")
    if not isinstance(found, dict):
        raise invalid("object", "needs a Kubernetes object")
    if not isinstance(found.get("metadata"), dict):
        raise invalid("object.metadata", "needs an object with name and namespace")
    return found


def type_of(fields: Fields, before: str = "") -> tuple[str, str]:
    """Return apiVersion and kind; ``before`` is the prefix of their names in errors. Raises CallRefused."""
    api_version = text_of(fields, "apiVersion", before=before)
    if not _API_VERSION.fullmatch(api_version):
        raise invalid(f"{before}apiVersion", "needs v1 or <group>/<version>")
    kind = text_of(fields, "kind", before=before)
    if not _KIND.fullmatch(kind):
        raise invalid(f"{before}kind", "needs the name of a kind: ConfigMap")
    return api_version, kind


def name_of(fields: Fields, field_name: str) -> str:
    """Return ``name``, called ``field_name`` in errors; raises CallRefused."""
    name = fields.get("name")
    # The rules of the API server for path segments; each kind has additional rules.
    if (
        not isinstance(name, str)
        or not name
        or len(name) > _LONGEST_NAME
        or name in {".", ".."}
        or not name.isprintable()
        or any(char in "/%?#\\" for char in name)
    ):
        raise invalid(field_name, "needs the name of an object")
    return name


def namespace_of(fields: Fields, field_name: str) -> str:
    """Return ``namespace``, "" if there is none, called ``field_name`` in errors; raises CallRefused."""
    namespace = fields.get("namespace")
    if namespace is None or namespace == "":
        return ""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise invalid(field_name, "needs the name of a namespace")
    return namespace


def subresource_of(fields: Fields) -> str:
    """Return ``subresource``, "" if there is none; raises CallRefused."""
    subresource = text_of(fields, "subresource", optional=True)
    if subresource and not _SUBRESOURCE.fullmatch(subresource):
        raise invalid("subresource", "needs one word: status")
    return subresource


def text_of(fields: Fields, name: str, *, optional: bool = False, before: str = "") -> str:
    """Return a text field, which can be empty or missing only if it is ``optional``; raises CallRefused."""
    value = fields.get(name)
    if value is None and optional:
        return ""
    if not isinstance(value, str) or (not value and not optional):
        raise invalid(f"{before}{name}", "needs text")
    return value
