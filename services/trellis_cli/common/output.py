"""The output of commands: tables for users, documents for programs.

In: complete values. Out: standard output. Called by every command that prints a result.
Invariants: with ``-o json`` or ``yaml`` standard output contains only documents; without a terminal nothing is wrapped,
coloured or padded, so that each row is one line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_UNLIMITED: Final = 100_000
"""Width of a line without a terminal."""
_AMBIGUOUS: Final = re.compile(r"[-+]?\.?[0-9]|[ynYN]\Z")
"""Strings that YAML 1.2 or kubectl's parser reads as numbers or booleans, which the library writes without quotes."""
_LINE_BREAKS: Final = re.compile("[\x85\u2028\u2029]")
"""Characters that YAML 1.1 reads as line breaks."""


class Format(StrEnum):
    """The output formats of kubectl; ``table`` is the default."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def structured(self) -> bool:
        """True for machine-readable formats."""
        return self in {Format.JSON, Format.YAML}


def parser_of(*accepted: Format) -> Callable[[str], Format]:
    """Return the parser of ``--output`` for a command with these formats."""

    def parse(value: str) -> Format:
        found = next((item for item in accepted if item == value.lower()), None)
        if found is None:
            raise typer.BadParameter(f"has {value!r}, needs one of: {', '.join(accepted)}")
        return found

    return parse


def _option(*accepted: Format) -> Any:  # noqa: ANN401 (typer's type is private)
    names = [item.value for item in accepted]
    return typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help=f"{', '.join(names[:-1])} or {names[-1]}",
        parser=parser_of(*accepted),
        autocompletion=lambda incomplete: [name for name in names if name.startswith(incomplete)],
    )


OutputOption = Annotated[Format, _option(Format.TABLE, Format.WIDE, Format.JSON, Format.YAML, Format.NAME)]
"""For commands that list objects."""
ObjectOption = Annotated[Format, _option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)]
"""For commands about objects whose table has no further columns."""
DocumentOption = Annotated[Format, _option(Format.TABLE, Format.JSON, Format.YAML)]
"""For commands with output other than a list of objects."""
ManifestOption = Annotated[Format, _option(Format.YAML, Format.JSON)]
"""For commands that print manifests for kubectl."""
NoHeadersOption = Annotated[bool, typer.Option("--no-headers", help="omit the column headings of tables")]


def _former_json(ctx: typer.Context, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.fail('option "--json": renamed to "-o json"')


FormerJsonOption = Annotated[bool, typer.Option("--json", hidden=True, callback=_former_json)]
"""The former option for JSON, which is rejected."""


def console() -> Console:
    """Return a console on standard output: as wide as the terminal; without one, unlimited and without colours."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=_UNLIMITED, force_terminal=False, color_system=None, highlight=False)


def make_table(*headings: str, fold: Collection[str] = ()) -> Table:
    """Return an empty table. ``fold``: the columns that a narrow terminal folds; no text is truncated."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in fold, overflow="fold")
    return table


def print_result(*found: RenderableType, no_headers: bool = False) -> None:
    """Print tables and lines of text without markup. ``no_headers``: omit the column headings of tables."""
    out = console()
    lines = [Text(item) if isinstance(item, str) else item for item in found]
    for item in lines:
        if isinstance(item, Table) and no_headers:
            item.show_header = False
    if out.is_terminal:
        for item in lines:
            out.print(item, highlight=False)
        return
    with out.capture() as captured:
        for item in lines:
            out.print(item)
    print_text("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_document(output: Format, document: object, *, lines: bool = False) -> None:
    """Print one document as JSON or YAML; ``lines``: as one of many, with JSON on a single line."""
    if output is Format.YAML:
        print_text(("---\n" if lines else "") + yaml_of(orjson.loads(orjson.dumps(document))).rstrip())
        return
    option = 0 if lines else orjson.OPT_INDENT_2
    print_text(orjson.dumps(document, option=option).decode())


def print_manifests(output: Format, manifests: Sequence[object]) -> None:
    """Print manifests for ``kubectl apply -f -``: YAML documents, or one List as JSON."""
    if output is Format.YAML:
        print_text("---\n".join(map(yaml_of, manifests)).rstrip())
    else:
        print_document(output, {"apiVersion": "v1", "kind": "List", "items": manifests})


def print_names(names: Iterable[str]) -> None:
    """Print the names of objects, one per line: ``node/worker-1``."""
    for name in names:
        print_text(name)


def yaml_of(document: object) -> str:
    """Return a document as YAML, with its fields in the given order."""
    import yaml  # noqa: PLC0415 - most commands print no YAML

    class Dumper(yaml.SafeDumper):
        """A dumper that quotes each string that kubectl would read as another type or other text."""

        def represent_text(self, text: str) -> yaml.ScalarNode:
            """Return a string, quoted if it is ambiguous."""
            style = '"' if _LINE_BREAKS.search(text) else "'" if _AMBIGUOUS.match(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def print_text(text: str) -> None:
    """Print text as it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def one_line(text: str) -> str:
    """Return external text on one line, with terminal control characters escaped."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return external text with terminal control characters and unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )
