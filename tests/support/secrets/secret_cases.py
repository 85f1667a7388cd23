"""One case of fuzzing, judged: what ``secrets_backend`` makes of it must be what the second reading makes of it."""

from __future__ import annotations

import json

from secrets_backend.domain.protocol import Request, open_request, seal_reply
from secrets_backend.domain.refusals import WITH_MESSAGE, Refusal
from support.secrets.opened_requests import KEYS, PLANTED
from support.secrets.secret_mutations import Case, case
from support.secrets.secret_oracle import RequestedSecret, judge
from support.secrets.secret_requests import HOST_HEADER, NOW, SENDER_PUBLIC, opened


def verdict(seed: int) -> str:
    """The outcome of a case, ``<kind> <error or accepted>``; raises AssertionError if it is a wrong one."""
    return judged(case(seed))


def judged(one: Case) -> str:
    """The outcome of a case that was drawn, as of ``verdict``."""
    wanted = _expected(one)
    try:
        found: str | RequestedSecret = _requested(open_request(one.headers, one.payload, KEYS, NOW).request())
    except Refusal as refusal:
        found = _answer_of(refusal)
    assert found == wanted, f"case {one.kind}: {found}, not {wanted}: {one.text!r}"
    return f"{one.kind}: {found if isinstance(found, str) else 'accepted'}"


def _expected(one: Case) -> str | RequestedSecret:
    if not (one.headers or {}).get(HOST_HEADER, "").strip(" \t"):
        return "InvalidHeaders"
    return "DecryptionError" if one.text is None else judge(one.text, NOW)


def _requested(request: Request) -> RequestedSecret:
    entity, host = ((token.issuer, token.subject, token.name) for token in (request.entity, request.host))
    assert request.reply_to == SENDER_PUBLIC
    assert opened(*seal_reply(request, b"{}")) == b"{}"
    policy = request.policy
    return RequestedSecret(
        request.secret, request.field, request.application, entity, host, policy.namespace, policy.impersonate
    )


def _answer_of(refusal: Refusal) -> str:
    """The error's name, once the body is one a host can read and nothing is in it that should not be."""
    body = refusal.body()
    error = json.loads(body)["error"]
    assert error == ({refusal.error: refusal.message} if refusal.error in WITH_MESSAGE else refusal.error)
    assert refusal.message.isprintable()
    assert len(refusal.message) < 1000
    assert refusal.__context__ is None
    assert not any(secret in f"{body!r} {refusal!r}" for secret in PLANTED)
    return str(refusal.error)
