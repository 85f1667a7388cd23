"""Judges a backend by the cases.

In: the world, a case. Out: whether what came is what has to come, in words. Called by tests and benchmarks.
Invariant: after each case the backend is asked for its key, so that the case that ends it is the one that is blamed.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.secrets.secrets_client import ClientError
from support.secrets.secrets_conformance.cases import Case, Outcome, UnreadableError, read, read_key
from support.secrets.secrets_conformance.world import World


@dataclass(frozen=True)
class Verdict:
    """The result of a case. ``alive``: whether the backend answers after it."""

    case: Case
    good: bool
    alive: bool
    came: str

    def __str__(self) -> str:
        return f"{self.case.id}: {self.came}; it has to be {self.case.expected}"


def judge(world: World, case: Case) -> Verdict:
    """Send a case's request, and judge what comes."""
    came: Outcome | None = None
    expected_text, good = "", False
    try:
        reply, host = case.ask.send(world)
        if reply is not None:
            came = read_key(reply) if case.expected.key else read(world, reply, host)
        good, expected_text = (
            case.expected.allows(came, world.server_xkey),
            str(came or "nothing came, and nothing has to"),
        )
    except ClientError as error:
        expected_text = f"no answer: {error}"
    except UnreadableError as error:
        expected_text = f"not readable: {error}"
    alive = _alive(world)
    return Verdict(
        case, good and alive, alive, expected_text if alive else f"{expected_text}; nothing answers any more"
    )


def _alive(world: World) -> bool:
    try:
        return world.ask_key() == world.server_xkey
    except ClientError:
        return False
