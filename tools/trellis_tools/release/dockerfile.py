"""Parses the final stage of the Dockerfiles in ``deploy/images``: the configuration and the contents of an image.

Pure. In: the text of a Dockerfile, values of its arguments. Out: copies from the build stage, removed files, labels,
environment, user and command. Called by ``images``, so that an image of a release has the configuration of an image
that a container engine builds. Invariant: an instruction that is not understood is an error, never ignored.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis_tools.release.errors import ReleaseError

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_REMOVE: Final = ["rm", "-rf"]


@dataclass(slots=True)
class Stage:
    """The final stage. ``copies``: pairs of a path in the build stage and a path in the image; both absolute."""

    environment: dict[str, str]
    copies: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """Patterns of paths that the image does not have, as of ``rm -rf``."""
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def final_stage(text: str, arguments: Mapping[str, str], environment: Mapping[str, str]) -> Stage:
    """Return the final stage of a Dockerfile. ``environment``: that of its base image.

    Raises:
        ReleaseError: it has an instruction that is not supported, or a variable without a value.
    """
    stage = Stage(dict(environment))
    instructions = _instructions(text)
    start = max((at for at, (name, _) in enumerate(instructions) if name == "FROM"), default=-1)
    if start < 0:
        raise ReleaseError("a Dockerfile has no FROM")
    values: dict[str, str] = {}
    for name, rest in instructions[start + 1 :]:
        if name == "ARG":
            key, _, default = rest.partition("=")
            values[key] = arguments.get(key, _unquoted(default))
        else:
            _apply(stage, name, rest, {**values, **stage.environment})
    return stage


def _instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions with their arguments, each on one line, without comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.strip().partition(" ") for line in joined.splitlines()]
    return [(name.upper(), rest.strip()) for name, _, rest in pairs]


def _apply(stage: Stage, name: str, rest: str, variables: Mapping[str, str]) -> None:
    """Apply one instruction to the stage."""
    match name:
        case "COPY":
            arguments = rest.split()
            if arguments[0] != "--from=build" or len(arguments) != 3:
                raise ReleaseError(f"COPY {rest}: a release supports only `COPY --from=build SOURCE DESTINATION`")
            stage.copies.append((arguments[1], arguments[2]))
        case "RUN":
            arguments = rest.split()
            if arguments[:2] != _REMOVE or not all(re.fullmatch(r"/[\w./*-]+", word) for word in arguments[2:]):
                raise ReleaseError(f"RUN {rest}: a release supports only `RUN rm -rf PATH …`, because it runs nothing")
            stage.removed += arguments[2:]
        case "LABEL":
            stage.labels |= _pairs(rest, variables)
        case "ENV":
            stage.environment |= _pairs(rest, variables)
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = _arguments(name, rest)
        case "CMD":
            stage.command = _arguments(name, rest)
        case _:
            raise ReleaseError(f"{name} {rest}: a release does not support this instruction in the final stage")


def _pairs(rest: str, variables: Mapping[str, str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in shlex.split(rest)]
    return {key: _expanded(value, variables) for key, _, value in pairs}


def _arguments(name: str, rest: str) -> list[str]:
    try:
        arguments = json.loads(rest)
    except ValueError:
        raise ReleaseError(f"{name} {rest}: use the JSON form, because an image has no shell for it") from None
    return [str(word) for word in arguments]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in variables:
            raise ReleaseError(f"${name} in {text} has no value")
        return variables[name]

    return _VARIABLE.sub(value, text)


def _unquoted(text: str) -> str:
    return "".join(shlex.split(text))
