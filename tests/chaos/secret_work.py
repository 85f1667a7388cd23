"""Steps of users on Secrets, permissions of accounts and grants, and the expected answers at the end.

Pure. In: a random generator and a length; or steps. Out: steps; or the value that each account is given of each Secret.
Called by ``schedule``, ``model`` and ``secret_side``. Invariant: a value is of one step alone, so that an answer says
which step it comes from.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from chaos.drawing import UserProfile, after, draw
from chaos.steps import Step

PART: Final = "secrets"
SECRETS: Final = ("s0", "s1", "s2")
ACCOUNTS: Final = ("reader", "writer")
_EVERY_SECONDS: Final = 1.2


class Act(StrEnum):
    """The action of a step. ``on`` is a Secret with its new value, or an account with the Secret that it may read."""

    SET = "set-secret"
    DELETE = "delete-secret"
    ALLOW = "let-read"
    FORBID = "forbid-reading"
    GRANT = "grant"
    REVOKE = "revoke-grant-of"


_WEIGHTS: Final = {Act.SET: 4, Act.DELETE: 1, Act.ALLOW: 6, Act.FORBID: 2, Act.GRANT: 4, Act.REVOKE: 1}
_PROFILE: Final = UserProfile(PART, _WEIGHTS, frozenset(), 0, _EVERY_SECONDS)


@dataclass
class SecretModel:
    """The steps of users so far. ``values``: of each Secret; ``readers``: which account may read which Secret.

    ``granted``: the accounts as which the lattice may be given something.
    """

    values: dict[str, str] = field(default_factory=dict)
    readers: set[tuple[str, str]] = field(default_factory=set)
    granted: set[str] = field(default_factory=set)
    _steps: int = 0

    def do(self, step: Step) -> None:
        """Let a step have happened."""
        match Act(step.act):
            case Act.SET:
                self.values[step.on] = step.value
            case Act.DELETE:
                del self.values[step.on]
            case Act.ALLOW:
                self.readers.add((step.on, step.value))
            case Act.FORBID:
                self.readers.discard((step.on, step.value))
            case Act.GRANT:
                self.granted.add(step.on)
            case Act.REVOKE:
                self.granted.discard(step.on)
        self._steps += 1

    def possible(self, act: str) -> list[tuple[str, str]]:
        """Return on what an act can be done now, with the value that it has then."""
        match Act(act):
            case Act.SET:
                return [(name, str(self._steps)) for name in SECRETS]
            case Act.DELETE:
                return [(name, "") for name in sorted(self.values)]
            case Act.ALLOW:
                return [(who, name) for who in ACCOUNTS for name in SECRETS if (who, name) not in self.readers]
            case Act.FORBID:
                return sorted(self.readers)
            case Act.GRANT:
                return [(who, "") for who in ACCOUNTS if who not in self.granted]
            case Act.REVOKE:
                return [(who, "") for who in sorted(self.granted)]

    def answers(self) -> dict[tuple[str, str], str]:
        """Return what is given now, by account and Secret; of what is not in it nothing is."""
        able = ((who, name) for who, name in self.readers if who in self.granted and name in self.values)
        return {(who, name): self.values[name] for who, name in able}


def work(rng: random.Random, seconds: float) -> Iterator[Step]:
    """Yield what people do in so many seconds."""
    return draw(rng, seconds, SecretModel(), _PROFILE)


def ended(steps: Iterable[Step]) -> SecretModel:
    """Return the model after all steps of this part."""
    return after(steps, SecretModel())
