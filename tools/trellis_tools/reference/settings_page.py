"""Writes the page of settings: each ``TRELLIS_`` variable with its default, its description and its services.

Pure. In: the settings classes. Out: a page. Called by ``__main__``.
Invariant: a variable whose meaning or default differs between services has one row for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from trellis.config.durations import format_seconds, parse_seconds
from trellis.config.settings import PREFIX, ServiceSettings
from trellis_tools.reference.markdown import GENERATED, cell, code, table

Models = Mapping[str, type[ServiceSettings]]
"""Settings by the name of their service."""

_MEBI: Final = 2**20
_INTRODUCTION: Final = """# Settings

Services read their settings from environment variables. An empty variable counts as unset. If a variable is invalid,
the service prints one line that names it and exits with status 2. Durations have a unit (`90s`, `10m`, `1h30m`; a
number without a unit is seconds), memory sizes are Kubernetes quantities (`512Mi`), and lists are separated by commas.

A former name of a variable is an error that names the current one. Any other unknown variable with the prefix
`TRELLIS_` is a warning of `trellis run`, with the closest name, and not an error: an image that is rolled back can have
the variables of a later version, and must start. Variables that Kubernetes sets for Services in the namespace of a pod
(`enableServiceLinks`) cause no warning. The chart refuses unknown settings in its values.
"""


def settings_page(models: Models) -> str:
    """Return the page: settings of all services, then those of single services."""
    common = set(ServiceSettings.model_fields)
    shared = [_row(name, ServiceSettings.model_fields[name]) for name in ServiceSettings.model_fields]
    own: dict[tuple[str, str, str], list[str]] = {}
    for service, model in models.items():
        for name, field in model.model_fields.items():
            if name not in common:
                own.setdefault(_row(name, field), []).append(service)
    rows = [(*row, ", ".join(code(item) for item in services)) for row, services in sorted(own.items())]
    return "\n".join(
        [
            GENERATED,
            _INTRODUCTION,
            f"## Settings of all services\n\n{table(('variable', 'default', 'description'), shared)}",
            f"## Settings of single services\n\n{table(('variable', 'default', 'description', 'services'), rows)}",
        ]
    )


def _row(name: str, field: FieldInfo) -> tuple[str, str, str]:
    return " or ".join(map(code, variables(name, field))), default_of(field), cell(field.description or "")


def variables(name: str, field: FieldInfo) -> list[str]:
    """Return the variables of a setting."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [f"{PREFIX}{name.upper()}"]


def default_of(field: FieldInfo) -> str:
    """Return a default as written by users; values that are generated at the start of a service have none."""
    if field.default_factory is not None:
        return "generated at the start"
    return code(format_seconds(field.default) if _is_duration(field) else _text(field.default))


def _is_duration(field: FieldInfo) -> bool:
    return any(getattr(item, "func", None) is parse_seconds for item in field.metadata)


def _text(value: Any) -> str:  # noqa: ANN401 (value of any setting)
    match value:
        case None | ():
            return ""
        case bool():
            return json.dumps(value)
        case Enum():
            return str(value.value)
        case int() if value >= _MEBI and value % _MEBI == 0:
            return f"{value // _MEBI}Mi"
        case float() if value.is_integer():
            return f"{value:.0f}"
        case tuple():
            return ",".join(_text(item) for item in value)
        case Path():
            return value.as_posix()
        case _:
            return str(value)
