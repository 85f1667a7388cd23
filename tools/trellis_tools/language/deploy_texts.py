"""Extracts prose from YAML, JSON, drawings and the templates of the Helm chart.

In: the source of a file. Out: descriptions, comments, labels, and messages of templates. Called by ``pages``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

import yaml

from trellis_tools.language.texts import PLACEHOLDER, Text, comment_blocks, is_prose, one_line

DESCRIPTIONS: Final = frozenset({"description", "summary", "title", "alert"})
_ACTION: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_TEMPLATE_COMMENT: Final = re.compile(r"\{\{-? ?/\*(.*?)\*/", re.DOTALL)
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_VERB: Final = re.compile(r"%[sdqv]")
_LABEL: Final = re.compile(r"<text\b[^>]*>(.*?)</text>", re.DOTALL)
_TARGET: Final = re.compile(r"^[a-z0-9-]+:.*?## (.*)$")


def descriptions(source: str, area: str) -> Iterator[Text]:
    """Yield the values of description, summary, title and alert in YAML or JSON, each on one line.

    Raises:
        yaml.YAMLError: the source is neither.
    """
    for document in yaml.compose_all(source, Loader=yaml.CSafeLoader):
        if document is not None:
            yield from _described(document, area)


def _described(node: yaml.Node, area: str) -> Iterator[Text]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _described(item, area)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            texts = isinstance(key, yaml.ScalarNode) and key.value in DESCRIPTIONS
            if texts and isinstance(value, yaml.ScalarNode):
                yield Text(area, value.start_mark.line + 1, _ACTION.sub(PLACEHOLDER, one_line(value.value)))
            else:
                yield from _described(value, area)


def comments(source: str, area: str) -> Iterator[Text]:
    """Yield the comments of YAML: adjacent comment lines are one text, a comment after a value is a separate one."""
    yield from comment_blocks(map(_split, source.split("\n")), area)


def _split(line: str) -> tuple[str, str | None]:
    """Return a line of YAML before its comment, and the comment; None without one."""
    quote = ""
    for position, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and not line[:position].rstrip(" ").endswith(tuple("abcdefghijklmnopqrstuvwxyz")):
            quote = character
        elif character == "#" and (position == 0 or line[position - 1] in " \t"):
            return line[:position], line[position + 1 :].strip()
    return line, None


def template_texts(source: str, area: str) -> Iterator[Text]:
    """Yield the comments of a template, the messages in its actions, and the comments of the rendered YAML."""
    for found in _TEMPLATE_COMMENT.finditer(source):
        yield Text(area, _line(source, found.start(1)), "\n".join(map(str.strip, found[1].split("\n"))))
    for action in _ACTION.finditer(source):
        if action[0].startswith(("{{/*", "{{- /*")):
            continue
        for string in _STRING.finditer(action[0]):
            if is_prose(string[1]):
                text = _VERB.sub(PLACEHOLDER, string[1].replace('\\"', '"'))
                yield Text(area, _line(source, action.start() + string.start()), text)
    yield from comments(_ACTION.sub(lambda found: "\n" * found[0].count("\n"), source), area)


def notes(source: str, area: str) -> Iterator[Text]:
    """Yield the sentences of NOTES.txt; indented lines are commands."""
    filled = _ACTION.sub(lambda found: _value(found[0]), source)
    for number, line in enumerate(filled.split("\n"), start=1):
        if line.strip(f"{PLACEHOLDER} ") and not line.startswith("  "):
            yield Text(area, number, line.strip())


def _value(action: str) -> str:
    """Return the replacement of an action: empty for control structures, a placeholder for a value."""
    control = re.match(r"\{\{-?\s*(?:if|else|end|range|with|define|template|\$\w+ :?=|/\*)", action)
    return "\n" * action.count("\n") if control else PLACEHOLDER


def targets(source: str, area: str) -> Iterator[Text]:
    """Yield the descriptions of the targets of a Makefile."""
    for number, line in enumerate(source.split("\n"), start=1):
        if found := _TARGET.match(line):
            yield Text(area, number, found[1])


def labels(source: str, area: str) -> Iterator[Text]:
    """Yield the texts of a drawing in SVG."""
    for found in _LABEL.finditer(source):
        yield Text(area, _line(source, found.start(1)), one_line(html.unescape(found[1])))


def _line(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1
