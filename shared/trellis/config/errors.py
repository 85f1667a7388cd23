"""Formats errors in settings as one line each.

In: pydantic's errors, the environment, overrides. Out: ``TRELLIS_HEALTH_PORT: has 'x', needs a whole number``.
Called by ``settings``. Invariant: passwords of URLs and values of secret fields are never in a line.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import annotated_types
from pydantic import AliasChoices, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

from trellis.installer_api.redaction import HIDDEN, redact_url

_EXPECTED: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "string_too_short": "at least {min_length} character(s)",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}
_RANGE: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_NEEDS: Final = "needs "
# Kubernetes sets such variables for each Service of a pod's namespace, such as trellis-nats.
_SERVICE_LINK = re.compile(r".+_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://[^/]+:[0-9]+")
_LINK_HINT: Final = " (Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod)"


RENAMED_SETTINGS: Final = {
    "TRELLIS_CONSOLE_SESSION_SECONDS": "TRELLIS_CONSOLE_SESSION_TTL",
    "TRELLIS_GRACE_SECONDS": "TRELLIS_SHUTDOWN_GRACE_PERIOD",
    "TRELLIS_LET_GO": "TRELLIS_REMOVE_FINALIZERS",
    "TRELLIS_SECRETS_CACHE_SECONDS": "TRELLIS_SECRETS_CACHE_TTL",
    "TRELLIS_SOURCES_SECONDS": "TRELLIS_SOURCES_INTERVAL",
}
"""Current names of settings by their former names, which are rejected: a setting is never ignored silently."""


class SettingsError(Exception):
    """Invalid settings; the message for users has one line per problem."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


def problem_lines(cls: type[BaseSettings], error: ValidationError, overrides: Mapping[str, object]) -> list[str]:
    """Return one line per error: the variable (and the flag), its value, and the valid values."""
    return [_line(cls, details, overrides) for details in error.errors(include_url=False)]


def renamed_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return one line per variable that is set under a former name, with the current name."""
    environ = os.environ if environ is None else environ
    former = {name: RENAMED_SETTINGS[name.upper()] for name in sorted(environ) if name.upper() in RENAMED_SETTINGS}
    return [f"{name}: renamed to {present}" for name, present in former.items()]


def unknown_variables(classes: Sequence[type[BaseSettings]], environ: Mapping[str, str] | None = None) -> list[str]:
    """Return one line per ``TRELLIS_`` variable that is not a field of the classes, with the closest name.

    Variables that Kubernetes adds for Services are left out. The lines are warnings: an image that is rolled back can
    have the variables of a later version, and must start.
    """
    known = {name.upper() for cls in classes for field in cls.model_fields for name in variables(cls, field)}
    environ = os.environ if environ is None else environ
    lines = []
    for name in sorted(environ):
        if not name.upper().startswith("TRELLIS_") or name.upper() in known or _SERVICE_LINK.fullmatch(name):
            continue
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
        lines.append(f"{name} is not known{f': did you mean {near[0]}?' if near else ''}")
    return lines


def variables(cls: type[BaseSettings], field: str) -> tuple[str, ...]:
    """Return the environment variables of a field in order of precedence."""
    alias = cls.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(choice for choice in alias.choices if isinstance(choice, str))
    if isinstance(alias, str):
        return (alias,)
    return (f"{cls.model_config.get('env_prefix', '')}{field}".upper(),)


def _line(cls: type[BaseSettings], details: ErrorDetails, overrides: Mapping[str, object]) -> str:
    field = _field_of(cls, details)
    if field is None:
        return redact_url(_needs(details, None))
    info = cls.model_fields[field]
    environ = {name.upper(): value for name, value in os.environ.items() if value}
    name = next((name for name in variables(cls, field) if name.upper() in environ), variables(cls, field)[0])
    if field in overrides:
        name = f"{variables(cls, field)[0]} (--{field.replace('_', '-')})"
    value = overrides.get(field, environ.get(name.upper()))
    if details["type"] == "missing" or value is None:
        return f"{name}: is required: {info.description or 'no default'}"
    shown = HIDDEN if _is_secret(info) else redact_url(str(value) if isinstance(value, int) else repr(str(value)))
    hint = _LINK_HINT if _LINK_VALUE.fullmatch(str(value)) and name.endswith("_PORT") else ""
    return f"{name}: has {shown}, {redact_url(_needs(details, info))}{hint}"


def _field_of(cls: type[BaseSettings], details: ErrorDetails) -> str | None:
    """Return the field of an error, whose location may be the alias that set the value."""
    if not details["loc"]:
        return None
    first = str(details["loc"][0])
    for field in cls.model_fields:
        if first.upper() in {field.upper(), *(name.upper() for name in variables(cls, field))}:
            return field
    return None


def _needs(details: ErrorDetails, info: FieldInfo | None) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "value_error":
        # Messages of Trellis validators start with "needs …".
        return str(context["error"])
    if kind in _RANGE and info is not None:
        return _NEEDS + _range(info)
    if kind in _EXPECTED:
        return _NEEDS + _EXPECTED[kind].format(**context)
    return f"is refused: {details['msg']}"


def _range(info: FieldInfo) -> str:
    limits = []
    for constraint in _constraints(info):
        match constraint:
            case annotated_types.Ge(ge=limit):
                limits.append(f"at least {limit}")
            case annotated_types.Gt(gt=limit):
                limits.append(f"more than {limit}")
            case annotated_types.Le(le=limit):
                limits.append(f"at most {limit}")
            case annotated_types.Lt(lt=limit):
                limits.append(f"less than {limit}")
            case _:
                pass
    return " and ".join(limits)


def _constraints(info: FieldInfo) -> list[Any]:
    """Return the constraints of a field, including those inside ``Annotated[…] | None``."""
    inside = [constraint for part in get_args(info.annotation) for constraint in getattr(part, "__metadata__", ())]
    found: list[Any] = []
    for constraint in (*info.metadata, *inside):
        found += constraint.metadata if isinstance(constraint, FieldInfo) else [constraint]
    return found


def _is_secret(info: FieldInfo) -> bool:
    kinds = (info.annotation, *get_args(info.annotation))
    return any(kind in {SecretStr, SecretBytes} for kind in kinds if isinstance(kind, type))
