"""Extracts prose from the front end of the console: TypeScript with JSX, and HTML.

In: the source of a file. Out: texts between tags, labels, and string constants that are words. Called by ``pages``.

This is not a parser: punctuation distinguishes code between two tags from text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trellis_tools.language.texts import PLACEHOLDER, Text, one_line

_COMMENT: Final = re.compile(r"/\*.*?\*/|<!--.*?-->|(?<![:\w\"'])//[^\n]*", re.DOTALL)
_STRING: Final = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`")
_VALUE: Final = re.compile(r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_BETWEEN_TAGS: Final = re.compile(r"(?<![=-])[>}]([^<>{}]+)(?=[<{])")
_CODE: Final = re.compile(
    r"[;=|\[\]]|&&|=>|\)\s*[:{?]|\(\s*$|^\s*[.),:?]|"
    r"\b(?:return|const|else|export|import|function|if|catch|finally|interface|extends|case|push|Readonly)\b"
)
_LABEL: Final = re.compile(r"(?:\b(?:title|label|aria-label|placeholder|alt|kind)=|\w:\s*)$")
_CODE_BEFORE: Final = re.compile(
    r"(?:\b(?:class|className|type|name|d|key|id|href|rel|style|viewBox)=(?:\{[^}]*)?|\b(?:import|from|querySelector\()\s*)$"
)
_PHRASE: Final = re.compile(r"[A-Za-z]{2,},?(?: \S+)* [A-Za-z]{2,}")
_WORD: Final = re.compile(r"[A-Za-z][a-z ]+")


def page_texts(source: str, area: str) -> list[Text]:
    """Return the texts of a source file in the order of their lines."""
    bare = _COMMENT.sub(_blank, source)
    return sorted((*_strings(bare, area), *_between_tags(_STRING.sub(_blank, bare), area)), key=lambda text: text.line)


def _strings(source: str, area: str) -> Iterator[Text]:
    for found in _STRING.finditer(source):
        before = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
        if _CODE_BEFORE.search(before):
            continue
        text = one_line(_VALUE.sub(PLACEHOLDER, next(group for group in found.groups() if group is not None)))
        if _PHRASE.search(text) or (_LABEL.search(before) and _WORD.fullmatch(text)):
            yield Text(area, _line(source, found.start()), text)


def _between_tags(source: str, area: str) -> Iterator[Text]:
    for found in _BETWEEN_TAGS.finditer(source):
        text = found[1]
        if re.search(r"[A-Za-z]{2}", text) and not _CODE.search(text):
            start = found.start(1) + len(text) - len(text.lstrip())
            yield Text(area, _line(source, start), one_line(text))


def _blank(found: re.Match[str]) -> str:
    """Return a match with all characters blank except line breaks."""
    return re.sub(r"[^\n]", " ", found[0])


def _line(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1
