"""Cases of subjects, headers, boxes and what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.secrets.secrets_client import Key
from support.secrets.secrets_conformance.cases import Case, Expected, granted, granted_or_refused, refused
from support.secrets.secrets_conformance.world import HOST_XKEY, Ask, Forge, Sealing, World, nkey

_BAD_KEY: Final = refused("DecryptionError")
_BAD_BOX: Final = refused("DecryptionError")
_BAD_TEXT: Final = refused("InvalidPayload")
_BAD_OPERATION: Final = refused("InvalidRequest")
_BAD_ENTITY: Final = refused("InvalidEntityJWT", "InvalidPayload")
_BAD_HOST: Final = refused("InvalidHostJWT", "InvalidPayload")
_CURVE: Final = 184
_SLACK: Final = "what stands for no byte is no part of it; the peer passes it over"


def _subjects() -> list[Case]:
    empty = lambda _: b""  # noqa: E731
    no_header = lambda *_: ()  # noqa: E731
    key = Expected(key=True)
    found = [
        Case("the key is given", Ask("server_xkey", box=empty, headers=no_header), key),
        Case("the key is given to who sends something", Ask("server_xkey"), key),
        Case("the key is given once more", Ask("server_xkey", box=empty, headers=no_header), key),
        Case("nobody waits for the key", Ask("server_xkey", replies=False), Expected(nothing=True)),
        Case("nobody waits for a secret", Ask(replies=False), Expected(nothing=True)),
        Case("nobody waits for a refusal", Ask(replies=False, box=empty), Expected(nothing=True)),
        Case("nobody waits for no operation", Ask("put", replies=False), Expected(nothing=True)),
    ]
    others = ("put", "list", "delete", "GET", "Get", "get_all", "get.more", "server_xkey.more", "SERVER_XKEY", "xkey")
    found += [Case(f"{name} is no operation", Ask(name), _BAD_OPERATION) for name in others]
    found.append(Case("no operation, nothing sent", Ask("put", box=empty, headers=no_header), _BAD_OPERATION))
    return found


def _headers() -> list[Case]:
    def head(name: str, value: Callable[[World, Key], str]) -> Ask:
        return Ask(headers=lambda world, host: ((name, value(world, host)),))

    public = lambda _, host: host.public  # noqa: E731
    longer = lambda _, host: host.public + "A"  # noqa: E731
    keys: Mapping[str, Callable[[World, Key], str]] = {
        "no key": lambda *_: "badkey",
        "another kind of key": lambda world, _: world.account.public,
        "a seed": lambda _, host: host.seed,
        "another key": lambda world, _: world.client.make_key("curve").public,
        "the server's key": lambda world, _: world.server_xkey,
        "a key in small letters": lambda _, host: host.public.lower(),
        "a key with a letter less": lambda _, host: host.public[:-1],
        "a key with a wrong checksum": lambda _, host: host.public[:-1] + ("A" if host.public[-1] != "A" else "B"),
        "a key of 31 bytes": lambda *_: nkey(_CURVE, bytes(31)),
        "a key of 33 bytes": lambda *_: nkey(_CURVE, bytes(33)),
        "a key of no bytes": lambda *_: nkey(_CURVE, b""),
        "a key that is zero": lambda *_: nkey(_CURVE, bytes(32)),
        "a long word": lambda *_: "X" * 10_000,
        "letters that are none of ours": lambda *_: "密码" * 18,
    }
    missing = refused("InvalidHeaders")
    return [
        Case("without headers", Ask(headers=lambda *_: ()), missing),
        Case("with another header only", head("Server-Response-Xkey", public), missing),
        Case("the header in small letters", head(HOST_XKEY.lower(), public), missing),
        Case("the header in capitals", head(HOST_XKEY.upper(), public), missing),
        Case("the header is empty", head(HOST_XKEY, lambda *_: ""), missing),
        Case("without headers and with no box", Ask(headers=lambda *_: (), box=lambda _: b"x"), missing),
        *(Case(f"the header is {what}", head(HOST_XKEY, value), _BAD_KEY) for what, value in keys.items()),
        Case("the header is a key with a letter more", head(HOST_XKEY, longer), _BAD_KEY, _SLACK),
        Case(
            "another header beside",
            Ask(headers=lambda _, host: (("X-Other", "1"), (HOST_XKEY, host.public), ("traceparent", "no"))),
            granted(),
        ),
        Case(
            "the header twice",
            Ask(headers=lambda world, host: ((HOST_XKEY, host.public), (HOST_XKEY, world.server_xkey))),
            granted_or_refused("DecryptionError", "InvalidHeaders"),
        ),
    ]


def _flipped(at: int) -> Callable[[Sealing], bytes]:
    def box(sealing: Sealing) -> bytes:
        sealed = bytearray(sealing.sealed())
        sealed[at] ^= 1
        return bytes(sealed)

    return box


def _boxes() -> list[Case]:
    boxes: Mapping[str, Callable[[Sealing], bytes]] = {
        "empty": lambda _: b"",
        "one byte": lambda _: b"x",
        "not sealed": lambda sealing: sealing.text,
        "a version alone": lambda _: b"xkv1",
        "a version and a nonce": lambda sealing: sealing.sealed()[:28],
        "half a tag": lambda sealing: sealing.sealed()[:36],
        "of another version": lambda sealing: b"xkv2" + sealing.sealed()[4:],
        "of no version": lambda sealing: sealing.sealed()[4:],
        "with another nonce": _flipped(4),
        "with another tag": _flipped(28),
        "with another first byte": _flipped(44),
        "with another last byte": _flipped(-1),
        "a byte short": lambda sealing: sealing.sealed()[:-1],
        "a byte long": lambda sealing: sealing.sealed() + b"x",
        "for another": lambda sealing: sealing.sealed(to=sealing.world.client.make_key("curve").public),
        "for the host itself": lambda sealing: sealing.sealed(to=sealing.host.public),
        "zeros": lambda _: b"xkv1" + bytes(500),
    }
    found = [Case(f"the box is {what}", Ask(box=box), _BAD_BOX) for what, box in boxes.items()]
    found.append(Case("the box is sealed twice", Ask(box=lambda it: it.sealed(it.sealed())), _BAD_TEXT))
    return found


def _texts() -> list[Case]:
    texts: Mapping[str, Any] = {
        "words": "not json",
        "a brace": "{",
        "a list": "[]",
        "a string": '"text"',
        "a number": "7",
        "a truth": "true",
        "in another encoding": '{"key":"x"}'.encode("utf-16"),
        "bytes": bytes(range(256)),
        "with a mark in front": b"\xef\xbb\xbf{}",
        "of single quotes": "{'key': 'x'}",
    }
    changed: Mapping[str, Callable[[str], str]] = {
        "something after it": lambda text: text + "x",
        "another after it": lambda text: text + text,
        "a comma too much": lambda text: text[:-1] + ",}",
        "no number": lambda text: text[:-1] + ',"more":NaN}',
        "the infinite": lambda text: text[:-1] + ',"more":-Infinity}',
        "a line break in a string": lambda text: text[:-1] + ',"more":"a\nb"}',
        "half of it": lambda text: text[: len(text) // 2],
        "a comment": lambda text: text[:-1] + "/* more */}",
    }
    deep = lambda request: json.dumps(request)[:-1] + ',"more":' + "[" * 100_000 + "]" * 100_000 + "}"  # noqa: E731
    digits = lambda request: json.dumps(request)[:-1] + ',"more":' + "9" * 10_000 + "}"  # noqa: E731
    open_ = granted_or_refused("InvalidPayload")
    return [
        Case("the text is null", Ask(text=lambda _: "null"), _BAD_ENTITY),
        Case("the text is an empty object", Ask(text=lambda _: "{}"), _BAD_ENTITY),
        Case("the text is empty", Ask(text=lambda _: ""), refused("InvalidPayload", "DecryptionError")),
        *(Case(f"the text is {what}", Ask(text=lambda _, text=text: text), _BAD_TEXT) for what, text in texts.items()),
        *(
            Case(f"the text has {what}", Ask(text=lambda request, do=do: do(json.dumps(request))), _BAD_TEXT)
            for what, do in changed.items()
        ),
        Case("the text is nested without end", Ask(text=deep), open_),
        Case("the text has a number of many digits", Ask(text=digits), open_),
        Case("the text has a number out of range", Ask(text=_more('"more":1e999')), open_),
        Case("the text says a thing twice", Ask(text=_more('"field":"text"')), open_),
        Case("the text has spaces", Ask(text=lambda request: json.dumps(request, indent=4) + "\r\n\t "), granted()),
        Case("the text escapes letters", Ask(text=_escaped), granted()),
        Case("the text is long", Ask(text=lambda request: json.dumps(request | {"more": "x" * 400_000})), granted()),
        Case("the text has more", Ask(text=_with(("more",), [1, {"a": None}])), granted()),
        Case("the context has more", Ask(text=_with(("context", "more"), {})), granted()),
        Case("the application has more", Ask(text=_with(("context", "application", "more"), "x")), granted()),
    ]


def _more(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda request: f"{json.dumps(request)[:-1]},{text}}}"


def _escaped(request: dict[str, Any]) -> str:
    return json.dumps(request).replace('"field"', '"\\u0066ield"')


def _with(path: tuple[str, ...], value: object) -> Callable[[dict[str, Any]], str]:
    """Return what puts a value, or with ``...`` leaves out what is, at a place in a request."""

    def text(request: dict[str, Any]) -> str:
        at = request
        for name in path[:-1]:
            at = at[name]
        if value is ...:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        return json.dumps(request)

    return text


_KINDS: Final[Mapping[str, object]] = {"a number": 7, "a list": [], "an object": {}, "a truth": True}


def _fields() -> list[Case]:
    paths: Mapping[str, tuple[str, ...]] = {
        "the name": ("key",),
        "the field": ("field",),
        "the entity's token": ("context", "entity_jwt"),
        "the host's token": ("context", "host_jwt"),
        "the application's name": ("context", "application", "name"),
        "the field of the policy": ("context", "application", "policy"),
    }
    found = [
        Case(f"{what} is {kind}", Ask(text=_with(path, value)), _BAD_TEXT)
        for what, path in paths.items()
        for kind, value in _KINDS.items()
    ]
    found += [
        Case(f"{what} is {kind}", Ask(text=_with(path, value)), _BAD_TEXT)
        for what, path in {"the context": ("context",), "the application": ("context", "application")}.items()
        for kind, value in {**_KINDS, "a string": "x"}.items()
        if kind != "an object"
    ]
    absent = {"left out": ..., "null": None, "empty": ""}
    policy_or_text = refused("PolicyError", "InvalidPayload")
    of = (
        ("the name", ("key",), refused("Other", "InvalidPayload", "PolicyError")),
        ("the field", ("field",), refused("Other", "InvalidPayload")),
        ("the entity's token", ("context", "entity_jwt"), _BAD_ENTITY),
        ("the host's token", ("context", "host_jwt"), _BAD_HOST),
        ("the application's name", ("context", "application", "name"), granted()),
        ("the field of the policy", ("context", "application", "policy"), policy_or_text),
    )
    found += [
        Case(f"{what} is {how}", Ask(text=_with(path, value)), expected)
        for what, path, expected in of
        for how, value in absent.items()
    ]
    found += [
        Case(f"the context is {how}", Ask(text=_with(("context",), absent[how])), _BAD_ENTITY)
        for how in ("left out", "null")
    ]
    found += [
        Case(f"the application is {how}", Ask(text=_with(("context", "application"), absent[how])), policy_or_text)
        for how in ("left out", "null")
    ]
    versions = {"null": None, "left out": ..., "empty": "", "one that was": "1", "one that never was": "v7"}
    found += [
        Case(f"the version asked for is {how}", Ask(text=_with(("version",), value)), granted())
        for how, value in versions.items()
    ]
    found.append(
        Case(
            "the version asked for is a number", Ask(text=_with(("version",), 7)), granted_or_refused("InvalidPayload")
        )
    )
    return found


def _order() -> list[Case]:
    bad = lambda _: "no token"  # noqa: E731

    def of(entity: bool, host: bool, policy: bool, name: bool) -> Ask:
        return Ask(
            entity=bad if entity else None,
            host=bad if host else None,
            policy=(lambda _: "no policy") if policy else None,
            name=(lambda _: "") if name else None,
        )

    forged: Callable[[Forge], str] = lambda forge: forge.signed(forge.world.client.make_key("account"))  # noqa: E731
    return [
        Case("all is wrong: the entity comes first", of(True, True, True, True), refused("InvalidEntityJWT")),
        Case("a wrong entity before a wrong host", of(True, True, False, False), refused("InvalidEntityJWT")),
        Case("a wrong entity before a wrong policy", of(True, False, True, False), refused("InvalidEntityJWT")),
        Case("a wrong host before a wrong policy", of(False, True, True, False), refused("InvalidHostJWT")),
        Case("a wrong host before no name", of(False, True, False, True), refused("InvalidHostJWT")),
        Case("a wrong policy before no name", of(False, False, True, True), refused("PolicyError")),
        Case("a forged entity before a forged host", Ask(entity=forged, host=forged), refused("InvalidEntityJWT")),
        Case("no name before no field", Ask(name=lambda _: "", field=""), refused("Other", says="missing secret name")),
        Case("no field before no Secret", Ask(name=lambda _: "none", field=""), refused("Other")),
        Case("no field is said so", Ask(field=""), refused("Other", says="missing secret key/field")),
        Case("no Secret before no entry", Ask(name=lambda _: "none", field="none"), refused("UpstreamError")),
    ]


WIRE: Final = (*_subjects(), *_headers(), *_boxes(), *_texts(), *_fields(), *_order())
