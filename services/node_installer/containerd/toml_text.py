"""Configuration as text: the marked section of Trellis, and tables removed from it, while every other byte stays.

Pure: text in, text out. Called by ``config``, which verifies each edit by parsing (templates cannot be parsed).
Invariants: ``without_section(with_section(text, body)) == text`` for every text; nothing outside of the section or of
the named table changes, nor do line ends.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Final

_BEGIN: Final = "# >>> trellis-node-installer: managed entries, do not edit"
_JOINED: Final = " (the line before had no end)"
_END: Final = "# <<< trellis-node-installer"

_SECTION = re.compile(
    rf"(?P<lead>(?<=[^\n])\n(?={re.escape(_BEGIN + _JOINED)})|(?<![^\n]))"
    rf"{re.escape(_BEGIN)}(?P<joined>{re.escape(_JOINED)})?\r?\n(?P<body>.*?){re.escape(_END)}"
    r"(?:: (?P<names>[^\r\n]*))?(?:\r?\n|\Z)",
    re.DOTALL,
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADER = re.compile(r"\s*\[(?!\[)(?P<key>.+?)\](?P<rest>\s*(?:#.*)?)\Z")
_STRINGS = re.compile(r'"""|\'\'\'')

Path = tuple[str, ...]


def section_of(text: str) -> str | None:
    """Return the body of the section of Trellis, None if it does not exist."""
    found = _SECTION.search(text)
    return found["body"] if found else None


def names_in_section(text: str) -> tuple[str, ...]:
    """Return the handlers that the section lists as managed by Trellis: users may have added further entries."""
    found = _SECTION.search(text)
    return tuple((found["names"] or "").split(", ")) if found else ()


def with_section(text: str, body: str, names: Iterable[str] = ()) -> str:
    """Return the text with the section of Trellis, in place of a former one or at the end.

    Args:
        text: the file.
        body: the content of the section; it ends with a newline.
        names: the handlers in it.
    """
    found = _SECTION.search(text)
    if found:
        joined = found["joined"] or ""
        return text[: found.start()] + found["lead"] + _render(body, joined, names) + text[found.end() :]
    if not text or text.endswith("\n"):
        return text + _render(body, "", names)
    return f"{text}\n{_render(body, _JOINED, names)}"


def without_section(text: str, *, keep: str = "") -> str:
    """Return the text without the section of Trellis; ``keep``: foreign lines inside of it, which stay in its place."""
    found = _SECTION.search(text)
    if not found:
        return text
    after = text[found.end() :]
    # The newline that was added belongs to the section only while nothing follows it.
    lead = found["lead"] if keep or after else ""
    return text[: found.start()] + lead + keep + after


def without_stray_marks(text: str) -> str:
    """Return the text without begin and end lines of sections of Trellis that lost their counterpart."""
    parts: list[str] = []
    position = 0
    for found in _SECTION.finditer(text):
        parts += [_unmarked(text[position : found.start()]), found[0]]
        position = found.end()
    return "".join([*parts, _unmarked(text[position:])])


def _unmarked(text: str) -> str:
    return "".join(line for line in lines_of(text) if not line.startswith((_BEGIN, _END)))


def _render(body: str, joined: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"{_BEGIN}{joined}\n{body}{_END}{': ' if listed else ''}{listed}\n"


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends: in TOML only LF ends a line, unlike in Unicode (U+0085)."""
    return _LINE.findall(text)


def tables_under(text: str, path: Path) -> list[tuple[int, int]]:
    """Return the spans (in lines) of the tables whose header is ``path`` or below it, from header to last own line.

    Comments and blank lines before the next header belong to that header. Quoting and spacing of headers do not
    matter; headers inside of multi-line strings do not count.
    """
    lines = lines_of(text)
    headers = list(_headers(lines))
    spans = []
    for index, (line, key) in enumerate(headers):
        if key[: len(path)] != path:
            continue
        end = headers[index + 1][0] if index + 1 < len(headers) else len(lines)
        spans.append((line, _own_end(lines, line, end)))
    return spans


def cut_tables(text: str, path: Path, *, comment: re.Pattern[str] | None = None, keep_comments: bool = False) -> str:
    """Return the text without the tables at and below ``path``.

    Args:
        text: the file.
        path: the keys of a header.
        comment: a line above a header that is removed with it.
        keep_comments: lines that are comments stay, also inside of the tables.
    """
    lines = lines_of(text)
    deleted: set[int] = set()
    for start, end in tables_under(text, path):
        deleted.update(line for line in range(start, end) if not (keep_comments and _is_comment(lines[line])))
        if comment and start > 0 and comment.fullmatch(lines[start - 1].rstrip("\r\n")):
            deleted.add(start - 1)
    return "".join(line for number, line in enumerate(lines) if number not in deleted)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _headers(lines: list[str]) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    open_string: str | None = None
    for number, line in enumerate(lines):
        if open_string is None and (header := _HEADER.match(line)):
            key = header_path(header["key"])
            # An array of tables or a template's directive also ends the table before it.
            found.append((number, key if key is not None else ()))
            continue
        if open_string is None and line.lstrip().startswith(("[[", "{{")):
            found.append((number, ()))
            continue
        for delimiter in _STRINGS.findall(_without_comment(line) if open_string is None else line):
            if open_string is None:
                open_string = delimiter
            elif open_string == delimiter:
                open_string = None
    return found


def _without_comment(line: str) -> str:
    return "" if _is_comment(line) else line


def header_path(text: str) -> Path | None:
    """Return the keys of a header, given the text between its brackets; None if it is not valid."""
    try:
        value: object = tomllib.loads(f"[{text}]")
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(value, dict) and value:
        [(name, value)] = value.items()
        path.append(name)
    return tuple(path)


def _own_end(lines: list[str], start: int, end: int) -> int:
    """Return the end of a table's own lines: trailing blank lines and comments belong to the next table."""
    last = end
    while last > start + 1 and (not lines[last - 1].strip() or _is_comment(lines[last - 1])):
        last -= 1
    return last
