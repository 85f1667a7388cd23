"""docs/sabotage.md: every break, the promise it breaks and the test that catches it.

Pure but for the names of decision records, which it reads. In: the breaks. Out: Markdown. Called by ``run --page`` and
by a contract test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sabotage.breaks import AREAS, BREAKS

_HEAD: Final = """\
# Mutation tests

`make sabotage` changes the product, one line at a time, and checks that a test of `make test` fails for each change.
There are {count} mutations. Each is a possible mistake of a developer: an inverted condition, a missing check, a
removed bound. Each violates one guarantee: of a decision record, of the [security model](security.md), of the
[architecture](architecture.md) or of a page for users.

```sh
make sabotage                       # all of them
make sabotage ARGS="Lease"          # those with this text in their name
make sabotage ARGS=--check          # only check that each mutation applies to the sources
```

A mutation names a function, a class or a template of the chart, and the text that it changes, so that the file can be
moved. If the text changes, update the mutation in `tests/sabotage/breaks`. `python tests/sabotage/run.py --page` writes
this page.
"""
_SOURCE: Final = re.compile(r"ADR (\d+)|[a-z][a-z0-9]*")


def page(root: Path) -> str:
    """Return the page; raises ValueError if a promise is of no decision record and no page that is there."""
    parts = [_HEAD.format(count=len(BREAKS))]
    for area, breaks in AREAS.items():
        parts.append(f"\n## {area}\n\n| mutation | guarantee | test |\n|---|---|---|\n")
        parts += [f"| {item.name} | {_linked(item.promise, root / 'docs')} | `{item.test}` |\n" for item in breaks]
    return "".join(parts)


def _linked(promise: str, docs: Path) -> str:
    """Return a promise with a link to where it is made."""
    source = _SOURCE.match(promise)
    if source is None:
        raise ValueError(f"{promise}: begin with the name of a decision record or a page")
    [file] = docs.glob(f"adr/{int(source[1]):04}-*.md" if source[1] else f"{source[0]}.md")
    return f"[{source[0]}]({file.relative_to(docs)}){promise[source.end() :]}"
