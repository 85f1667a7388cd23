"""Answers of ``secrets_backend`` to a request, checked for the absence of sealed content."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.domain.protocol import Request, open_request
from secrets_backend.domain.refusals import ErrorName, Refusal
from support.secrets.secret_requests import NOW, SERVER, SERVER_SEED, headers, sealed

KEYS = KeyRing(CurveKey.from_seed(SERVER_SEED))
PLANTED = (SERVER_SEED, bytes(SERVER).hex(), repr(bytes(SERVER)))
SHORT = 24


@dataclass(frozen=True)
class Opening:
    """One message on ``….get``."""

    payload: bytes
    headers: Mapping[str, str] | None
    keys: KeyRing = KEYS
    now: float = NOW


def message(text: bytes, now: float = NOW) -> Opening:
    """A message whose box, from a good sender, has this text."""
    return Opening(sealed(text), headers(), now=now)


def accepted(opening: Opening) -> Request:
    """The request; raises if it is refused."""
    return open_request(opening.headers, opening.payload, opening.keys, opening.now).request()


def refusal(opening: Opening, text: bytes = b"") -> Refusal:
    """The refusal; fails if there is none, or if it or a frame below has a key, or a part of a token in ``text``."""
    try:
        request = open_request(opening.headers, opening.payload, opening.keys, opening.now).request()
    except Refusal as refused:
        found = refused
    else:
        raise AssertionError(f"accepted: {request}")
    _holds_nothing(found, [*PLANTED, *_tokens(text)])
    return found


def answer(name: ErrorName, body: bytes) -> str:
    """The message of an answer of this name; fails if a host could not read it."""
    error = json.loads(body)["error"]
    if isinstance(error, str):
        assert error == name
        return ""
    assert list(error) == [name]
    assert isinstance(error[name], str)
    return str(error[name])


def _holds_nothing(refused: Refusal, planted: list[str]) -> None:
    assert refused.__context__ is None
    assert refused.__cause__ is None
    assert refused.__traceback__ is not None
    below = traceback.StackSummary.extract(traceback.walk_tb(refused.__traceback__.tb_next), capture_locals=True)
    text = "".join([*below.format(), *traceback.format_exception(refused), repr(refused), refused.body().decode()])
    assert [item for item in planted if item in text] == []


def _tokens(text: bytes) -> list[str]:
    """The parts of the tokens in a request that are long enough to be found by more than chance."""
    try:
        context = json.loads(text)["context"]
        tokens = [context[name] for name in ("entity_jwt", "host_jwt") if isinstance(context[name], str)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [part for token in tokens for part in token.split(".") if len(part) > SHORT]
