"""A number or percentage of objects: the size of a rollout step.

Pure. In: text or int from a setting or a manifest (IntOrString of Kubernetes). Out: a number of objects. Called by
settings, CRD models and plans. Invariant: ``resolve`` returns at least 1, so a rollout always progresses. Source:
apps/v1 Deployment ``maxUnavailable``, except that zero is rejected, because it would block the rollout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_NEEDS: Final = "needs a whole number or a percentage, e.g. 5 or 10%"
_INT32_MAX: Final = 2**31 - 1
_WHOLE = 100
_FORM = re.compile(r"(?P<amount>[0-9]+)(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class CountOrPercent:
    """A number such as ``5`` or a percentage such as ``10%``; a pydantic field of this type accepts int or string.

    Raises:
        ValueError: zero, negative, more than 100 %, or more than Kubernetes' int32.
    """

    amount: int
    is_percent: bool = False

    def __post_init__(self) -> None:
        if self.amount < 1:
            message = "needs at least 1 or 1%: 0 would block the rollout"
            raise ValueError(message)
        if self.is_percent and self.amount > _WHOLE:
            message = "needs a percentage of at most 100%"
            raise ValueError(message)
        if self.amount > _INT32_MAX:
            message = f"needs at most {_INT32_MAX}"
            raise ValueError(message)

    @classmethod
    def parse(cls, value: object) -> CountOrPercent:
        """Return the value of ``5``, ``"5"`` or ``"10%"``.

        Raises:
            ValueError: the value has another form; the message describes the valid ones.
        """
        if isinstance(value, CountOrPercent):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        if isinstance(value, str) and (match := _FORM.fullmatch(value.strip())):
            return cls(int(match["amount"]), is_percent=bool(match["percent"]))
        raise ValueError(_NEEDS)

    def resolve(self, total: int) -> int:
        """Return the number of objects out of ``total``: a percentage is rounded down, to at least 1."""
        if not self.is_percent:
            return self.amount
        return max(1, total * self.amount // _WHOLE)

    def __str__(self) -> str:
        """Return the form that :meth:`parse` reads."""
        return f"{self.amount}%" if self.is_percent else str(self.amount)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the pydantic schema; the JSON form is IntOrString."""
        del source, handler
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            json_schema_input_schema=core_schema.union_schema([core_schema.int_schema(), core_schema.str_schema()]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                cls._as_int_or_string,
                return_schema=core_schema.union_schema([core_schema.int_schema(), core_schema.str_schema()]),
                when_used="json",
            ),
        )

    def _as_int_or_string(self) -> int | str:
        return str(self) if self.is_percent else self.amount
