"""Hooks of mkdocs: add the decisions to the navigation, and rewrite links to files outside docs/.

In: the navigation, the text of each page. Out: the same, with every page listed, and links to other files of the
repository as URLs of the published one. Called by mkdocs. Invariant: such a link to a missing file fails the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
PUBLISHED = "https://github.com/trellis-wasm/trellis/blob/main"
_NAMED = re.compile(r"^(```[a-z]+) [^{\n]+$", re.MULTILINE)
_LINK = re.compile(r"(\]\()((?:\.\./)+(?!\.\.)[^)#\s]+)")


def on_config(config: Any) -> Any:  # noqa: ANN401 (mkdocs' own type)
    """Add the decisions, and the pages that mkdocs.yml does not list, so that every page is reachable."""
    docs = ROOT / "docs"
    decisions = ["adr/index.md", *sorted(path.relative_to(docs).as_posix() for path in (docs / "adr").glob("0*.md"))]
    placed = {*decisions, *_pages(config["nav"])}
    others = sorted({path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - placed)
    config["nav"] += [{"More": others}] if others else []
    config["nav"].append({"Decisions": decisions})
    return config


def _pages(nav: Any) -> Iterator[str]:  # noqa: ANN401 (a tree of lists, dictionaries and paths)
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from _pages(below)
    else:
        for below in nav:
            yield from _pages(below)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 (mkdocs' own type)
    """Return a page whose links to files outside docs/ lead to the published repository.

    Raises:
        PluginError: the file does not exist.
    """
    here = (ROOT / "docs" / page.file.src_uri).parent

    def led(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        if not target.exists():
            message = f"{page.file.src_uri} links to {found[2]}, which does not exist"
            raise PluginError(message)
        return f"{found[1]}{PUBLISHED}/{target.relative_to(ROOT).as_posix()}"

    # A block may have a name after its language, for tests only.
    return _NAMED.sub(r"\1", _LINK.sub(led, markdown))
