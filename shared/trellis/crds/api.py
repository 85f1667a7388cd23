"""Common base classes and field types of the custom resources.

In: field declarations of the other modules. Out: pydantic models whose JSON schema ``schema`` can translate.
Invariant: field names are camelCase in the API and snake_case in Python; fields of a newer version are ignored.
Source: Kubernetes API conventions, "Typical status properties" and "Optional vs. Required".
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

KUBERNETES: Final = "x-kubernetes-"
"""Prefix of the extensions of a structural schema."""

IntOrPercent = Annotated[
    int | str,
    Field(union_mode="left_to_right"),
    WithJsonSchema(
        {
            f"{KUBERNETES}int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            # Each applies to one of the two types. Zero is rejected, as no node would ever be changed.
            "minimum": 1,
            "pattern": "^([1-9][0-9]?|100)%$",
        }
    ),
]
"""A number, or a percentage as a string, of at least 1: ``5`` or ``"10%"``."""

Quantities = Annotated[
    dict[str, int | str],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                f"{KUBERNETES}int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            },
        }
    ),
]
"""Resource quantities by resource name: ``{"memory": "16Mi"}``."""


LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE, max_length=63)]

Uint32 = Annotated[int, Field(ge=0, json_schema_extra={"format": "uint32"})]
Uint16 = Annotated[int, Field(ge=0, json_schema_extra={"format": "uint16"})]
"""Formats that the API server does not check, as kube-rs writes them."""


class ApiModel(BaseModel):
    """Base of every object and sub-object."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        defer_build=True,  # models are built on first use: a service reads only a few of them
    )


class Condition(ApiModel):
    """Condition of an object, as in ``metav1.Condition``."""

    type: str = Field(max_length=316)
    """Type of the condition, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the object that the condition describes."""
    last_transition_time: datetime
    """Time of the last change of the status of this condition."""
    reason: str = Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    """Reason of the status, in CamelCase, for programs."""
    message: str = Field(max_length=32768)
    """Explanation of the reason, for people."""


Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={f"{KUBERNETES}list-type": "map", f"{KUBERNETES}list-map-keys": ["type"]}),
]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Return ``json_schema_extra`` with CEL rules, each a pair of rule and message."""
    return {f"{KUBERNETES}validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def never(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Return ``json_schema_extra`` that rejects objects for which a CEL expression over ``self`` is true.

    An object that was stored before the rule existed can still be changed and deleted. Requires Kubernetes 1.30.
    """
    found = [
        {
            "rule": f"!({wrong}) || (oldSelf.hasValue() && ({wrong.replace('self.', 'oldSelf.value().')}))",
            "message": message,
            "optionalOldSelf": True,
        }
        for wrong, message in pairs
    ]
    return {f"{KUBERNETES}validations": found}


def immutable(field: str, instead: str) -> dict[str, Any]:
    """Return ``json_schema_extra`` of an immutable field; ``instead`` is the advice in the message."""
    return rules(("self == oldSelf", f"{field} cannot be changed: {instead}"))
