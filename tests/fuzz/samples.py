"""Documents that a model accepts, drawn at random: what mutations begin with.

In: a pydantic model. Out: JSON that is mostly right. Texts are those of a pool that the field takes, so that patterns
and limits are met without being known here.
"""

from __future__ import annotations

import contextlib
import functools
import random
import types
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

POOL: tuple[Any, ...] = (
    "a", "spin", "team-a", "default", "v1", "batch/v1", "ConfigMap", "Job", "64Mi", "1.5G", "30s", "5m", "10%", "5",
    "2", "true", "NoSchedule", "NotIn", "In", "app", "linux", "amd64", "https://example.com/shim.tar.gz",
    "/opt/shim", "nats://nats:4222", "registry.example/team/shim:1.2",
    "registry.example/t/s@sha256:" + "a" * 64, "a" * 64, "*",
    "sha256:" + "b" * 64, "2026-01-31T12:00:00Z", "0123456789abcdef", "kube-system/x", "n.1", "ACME", "A" + "B" * 55,
    "system:serviceaccount:a:b", "a/b", "wasmcloud.dev/x", "0.1.0", "é", "x y", "",
)  # fmt: skip
NUMBERS = (0, 1, 2, 5, 10, 63, 80, 100, 1000, 8080, 65535)
_DEPTH = 6
M = TypeVar("M", bound=BaseModel)


def sample(rng: random.Random, model: type[BaseModel], depth: int = 0) -> dict[str, Any]:
    """Return a document for a model, by its aliases."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if not field.is_required() and (depth >= _DEPTH or rng.random() < 0.5):
            continue
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        found[field.alias or name] = _of(rng, annotation, depth)
    return found


def _of(rng: random.Random, annotation: Any, depth: int) -> Any:
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        return sample(rng, plain, depth + 1)
    origin, inner = get_origin(plain), get_args(plain)
    if origin in (Union, types.UnionType):
        choices = [item for item in inner if item is not type(None)]
        return _of(rng, rng.choice(choices), depth)
    if origin in (list, tuple, set, frozenset) and inner:
        return [_of(rng, inner[0], depth + 1) for _ in range(rng.choice([1, 1, 2, 3]) if depth < _DEPTH else 0)]
    if origin is dict and inner:
        return {str(_of(rng, inner[0], depth + 1)): _of(rng, inner[1], depth + 1) for _ in range(rng.randrange(3))}
    if origin is Literal:
        return rng.choice(inner)
    if isinstance(plain, type) and issubclass(plain, Enum):
        return rng.choice(list(plain)).value
    fitting = _fitting(annotation)
    return rng.choice(fitting) if fitting else rng.choice(POOL)


def sampled(rng: random.Random, model: type[M]) -> M:
    """Return an instance; one of those that the rules between fields let pass."""
    while True:
        with contextlib.suppress(ValidationError):
            return model.model_validate(sample(rng, model))


@functools.cache
def _fitting(annotation: Any) -> tuple[Any, ...]:
    """Return what of the pool a field takes."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except PydanticUserError:
        return ()
    found = []
    for item in (*POOL, *NUMBERS, True, False, {"a": "b"}):
        try:
            adapter.validate_python(item)
        except ValidationError:
            continue
        found.append(item)
    texts = [item for item in found if isinstance(item, str)]
    return tuple(texts or found)
