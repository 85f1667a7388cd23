"""Mutations of a valid message: unexpected values, texts and bytes.

In: a ``random.Random`` and something that is right. Out: something that may not be. The generator draws from nothing
else, so a case is had again by its seed, and hypothesis can draw in its place to make a case small.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

DEEP = "@deep@"
"""A text that :func:`dumped` writes as a list of two thousand lists, which ``json`` itself would not write."""
_LEVELS = 2_000

TEXTS: list[str] = [
    "", " ", "a", "A", "0", "-1", "1.5", "1e999", "true", "null", "{}", "[]", "default", "..", ".", "a/b", "a.b", "a b",
    "a\n", "\n", "\r\n", "\0", "\x85", "\u2028", "\ufeff", "é", "\U0001f600", "²", "٣", "*", ">", "=", "=2E", "%2f",
    "#", "?", "\\", '"', "'", "]", "[", "{{", "x" * 70, "x" * 300, "9" * 30, "9" * 5000, "-", "_", "system:masters",
    "\ud800", "127.0.0.1", "[::1]:80", "http://u:p@h/x", "sha256:", "2026-01-01T00:00:00Z", "inf", "nan",
]  # fmt: skip
SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e300, DEEP,
    *TEXTS,
]  # fmt: skip
FRAGMENTS = [
    b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b"\\ud800", b"\\udc00\\ud800", b"\\u0000",
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n",
    b" ", b"\0", b"[" * 400 + b"]" * 400, b"[" * 3000 + b"]" * 3000, b"9" * 400, b"9" * 5000, b"/**/", b"=", b"#",
    b"\r\n", b"'''", b'"""',
]  # fmt: skip


def value(rng: random.Random, scalars: Sequence[Any] = SCALARS, depth: int = 0) -> Any:
    """Any JSON, mostly a scalar."""
    if depth < 2 and rng.random() < 0.2:
        return [value(rng, scalars, depth + 1) for _ in range(rng.randrange(3))]
    if depth < 2 and rng.random() < 0.2:
        return {str(rng.choice(scalars)): value(rng, scalars, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(scalars)


def mutated(rng: random.Random, document: Any, scalars: Sequence[Any] = SCALARS) -> Any:
    """A copy with one place, picked evenly on the way down, changed, left out, or with something added."""
    if isinstance(document, list) and document and rng.random() < 0.9:
        return _mutated_list(rng, document, scalars)
    if not isinstance(document, dict) or not document or rng.random() < 0.05:
        return value(rng, scalars)
    name = rng.choice(list(document))
    rest = {key: item for key, item in document.items() if key != name}
    action = rng.random()
    if action < 0.15:
        return rest
    if action < 0.3:
        return document | {str(rng.choice(scalars)): value(rng, scalars)}
    if action < 0.4:
        return rest | {rng.choice([name.upper(), name + " ", name[:-1]]): document[name]}
    return document | {name: mutated(rng, document[name], scalars)}


def _mutated_list(rng: random.Random, items: list[Any], scalars: Sequence[Any]) -> list[Any]:
    place = rng.randrange(len(items))
    action = rng.random()
    if action < 0.1:
        return items[:place] + items[place + 1 :]
    if action < 0.2:
        return [*items, items[place]]
    if action < 0.3:
        return [*items[:place], value(rng, scalars), *items[place:]]
    return [*items[:place], mutated(rng, items[place], scalars), *items[place + 1 :]]


def mutated_often(rng: random.Random, document: Any) -> Any:
    """A copy with none, one, or a few places changed."""
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        document = mutated(rng, document)
    return document


def dumped(rng: random.Random, document: Any) -> bytes:
    """JSON in one of its forms; now and then spoilt, or with what makes parsers recurse."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.7, indent=rng.choice([None, None, 1]))
    text = text.replace(f'"{DEEP}"', "[" * _LEVELS + "]" * _LEVELS)
    raw = text.encode(errors="surrogatepass")
    return spoilt(rng, raw) if rng.random() < 0.1 else raw


def spoilt(rng: random.Random, raw: bytes, fragments: Sequence[bytes] = FRAGMENTS) -> bytes:
    """The same bytes with some changed, left out, doubled or added."""
    changed = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 1 if place < len(changed):
                changed[place] = rng.randrange(256)
            case 2:
                changed[place:place] = rng.choice(fragments)
            case 3:
                del changed[place : place + rng.choice([1, 1, 2, 10, 200])]
            case 4:
                end = place + rng.randrange(60)
                changed[place:place] = changed[place:end]
            case _:
                changed[place : place + rng.randrange(5)] = rng.choice(fragments)
    return bytes(changed)


def spoilt_text(rng: random.Random, text: str, pieces: Sequence[str] = TEXTS) -> str:
    """The same text with a few characters changed, left out, doubled or added."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        place = rng.randrange(len(text) + 1)
        new = rng.choice([rng.choice(pieces), chr(rng.randrange(128)), text[place : place + 4], ""])
        text = text[:place] + new + text[place + rng.choice([0, 1, 1, 3]) :]
    return text


def text(rng: random.Random, good: Sequence[str] = ()) -> str:
    """One of the good texts, one of them spoilt, or an unexpected one."""
    kind = rng.randrange(4)
    if good and kind < 2:
        return rng.choice(good)
    if good and kind == 2:
        return spoilt_text(rng, rng.choice(good))
    return "".join(rng.choice(TEXTS) for _ in range(rng.choice([1, 1, 2, 3])))


def texts(rng: random.Random, keys: Sequence[str], good: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A map of some of these keys to texts, with good ones where there are any."""
    return {key: text(rng, good.get(key, ())) for key in keys if rng.random() < 0.6}
