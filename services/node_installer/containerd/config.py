"""containerd's configuration, parsed: its runtimes, and the same text with entries of Trellis added or removed.

Pure: text in, text out. Called by ``target`` and ``plan``. Source: containerd's configuration versions 1 to 4
(``docs/PLUGINS.md``, ``docs/cri/config.md``): the CRI plugin is ``cri`` in version 1, ``io.containerd.grpc.v1.cri`` in
version 2 and ``io.containerd.cri.v1.runtime`` from version 3 on; a file without a version is version 1.
Invariant: an edit is verified: the new text, parsed, is the old meaning with exactly the wanted difference.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from node_installer.containerd import toml_tables, toml_text
from node_installer.containerd.entries import Entry, render
from node_installer.containerd.toml_tables import BYTE_ORDER_MARK, CRI_V1, CRI_V2, CRI_V3, PLUGINS, Document
from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

# runtime-class-manager writes this line above each of its tables.
FOREIGN_COMMENT: Final = re.compile(r"# RCM runtime config for \S+")


def parse(text: str, path: str) -> Document:
    """Return a parsed configuration.

    Raises:
        InstallError: ``ConfigUnreadable``.
    """
    try:
        return _loads(text)
    except ValueError as error:
        message = f"{path} is not valid TOML ({error}): correct or move the file, and retry"
        raise InstallError(FailureReason.CONFIG_UNREADABLE, message) from error


def _loads(text: str) -> Document:
    """Return a parsed text; raises ValueError, also for numbers and nestings beyond the limits of the parser."""
    try:
        return tomllib.loads(text.removeprefix(BYTE_ORDER_MARK))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def version_of(document: Mapping[str, Any]) -> int:
    """Return the version of a configuration; 1 without one."""
    version = document.get("version", 1)
    return version if isinstance(version, int) and version > 0 else 1


def plugin_of(document: Mapping[str, Any]) -> str:
    """Return the ID of the plugin whose runtimes containerd reads in this file.

    A version 2 file may name version 3's plugin: containerd 2 leaves it unchanged (as on Azure's nodes).
    """
    version = version_of(document)
    plugins = document.get("plugins")
    present = plugins if isinstance(plugins, dict) else {}
    if version >= 3 or CRI_V3 in present:
        return CRI_V3
    return CRI_V2 if version == 2 else CRI_V1


def plugin_for(version: int) -> str:
    """Return the ID of the CRI plugin in a new file of this version."""
    return CRI_V3 if version >= 3 else CRI_V2 if version == 2 else CRI_V1


def runtimes_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``runtime_type`` of each handler in a file, for all CRI plugins; "" if it has none."""
    found: dict[str, str] = {}
    for plugin in reversed(PLUGINS):
        for handler, table in _runtimes(document, plugin).items():
            if isinstance(table, dict):
                found[handler] = str(table.get("runtime_type", ""))
    return found


def runtimes_of_template(text: str) -> dict[str, str]:
    """Return the same for a Go template, which is not TOML: by its headers and the lines with ``runtime_type``."""
    found: dict[str, str] = {}
    lines = toml_text.lines_of(text)
    for plugin in PLUGINS:
        prefix = ("plugins", plugin, "containerd", "runtimes")
        for start, end in toml_text.tables_under(text, prefix):
            header = re.match(r"\s*\[(.+?)\]\s*(?:#.*)?$", lines[start].rstrip("\r\n"))
            path = toml_text.header_path(header[1]) or () if header else ()
            if len(path) == len(prefix) + 1:
                kind = re.search(r"^\s*runtime_type\s*=\s*[\"']([^\"']*)[\"']", "".join(lines[start:end]), re.MULTILINE)
                found[path[-1]] = kind[1] if kind else ""
    return found


def merged(
    text: str, entries: Iterable[Entry], *, path: str, adopted: Iterable[str] = (), original: str | None = None
) -> str:
    """Return a configuration file's text with exactly these entries of Trellis.

    Args:
        text: the file; it may have a section of Trellis, which is replaced.
        entries: all entries of Trellis; without any, the section is removed.
        path: for messages.
        adopted: handlers that another installer defined outside of the section of Trellis: their tables are removed.
        original: the file before the first entry of Trellis: its tables stay, even if they become empty.

    Raises:
        InstallError: ``ConfigUnreadable``, also if no edit leads to the wanted meaning.
    """
    wanted = sorted(entries, key=lambda entry: entry.handler)
    bare = _without_stray_marks(text, parse(text, path))
    former = set(adopted)
    if bare == text and toml_text.section_of(text) is None and _has_exactly(parse(text, path), wanted, former):
        return text
    text = bare
    base = _take_out(_without_ours(text), sorted(former), path, original)
    document = parse(base, path)
    plugin = plugin_of(document)
    if not wanted:
        return base
    meaning = copy.deepcopy(document)
    for entry in wanted:
        _runtimes_in(meaning, plugin)[entry.handler] = entry.value()
    new = toml_text.with_section(base, render(wanted, plugin), [entry.handler for entry in wanted])
    if _means(new, meaning):
        return new
    new = toml_tables.edited(base, {entry.handler: entry.value() for entry in wanted}, plugin, {})
    if _means(new, meaning):
        return new
    raise InstallError(
        FailureReason.CONFIG_UNREADABLE,
        f'{path} is written in a form that cannot be extended: add a table [plugins."{plugin}".containerd.runtimes]',
    )


def merged_template(text: str, entries: Iterable[Entry], *, plugin: str, adopted: Iterable[str] = ()) -> str:
    """Return a Go template's text (k3s, RKE2) with exactly these entries of Trellis. The runtime verifies it."""
    base = _without_ours(toml_text.without_stray_marks(text))
    for handler in adopted:
        base = _cut_text(base, handler)
    wanted = sorted(entries, key=lambda entry: entry.handler)
    return toml_text.with_section(base, render(wanted, plugin), [entry.handler for entry in wanted]) if wanted else base


def same_meaning(item: str, other: str) -> bool:
    """Return whether two texts have the same meaning.

    If one cannot be parsed, whether they are equal except for comments.
    """
    try:
        return _loads(item) == _loads(other)
    except ValueError:
        return _bare_lines(item) == _bare_lines(other)


def _bare_lines(text: str) -> list[str]:
    return [line.strip() for line in toml_text.lines_of(text) if line.strip() and not line.lstrip().startswith("#")]


def _means(text: str, meaning: Document) -> bool:
    try:
        return _loads(text) == meaning
    except ValueError:
        return False


def _without_stray_marks(text: str, meaning: Document) -> str:
    """Return the text without section marks that lost their counterpart; marks inside of strings stay."""
    bare = toml_text.without_stray_marks(text)
    return bare if _means(bare, meaning) else text


def _has_exactly(document: Document, wanted: list[Entry], former: set[str]) -> bool:
    """Return whether a file without a section of Trellis already has the wanted entries, edited in place."""
    runtimes = _runtimes(document, plugin_of(document))
    unwanted = former - {entry.handler for entry in wanted}
    return (
        bool(wanted)
        and all(runtimes.get(entry.handler) == entry.value() for entry in wanted)
        and unwanted.isdisjoint(runtimes_of(document))
    )


def _without_ours(text: str) -> str:
    """Return the text without the section of Trellis; foreign lines inside of it stay, comments too."""
    while (body := toml_text.section_of(text)) is not None:
        for handler in toml_text.names_in_section(text):
            # Trellis writes no comments there.
            body = _cut_text(body, handler, keep_comments=True)
        text = toml_text.without_section(text, keep=body if body.strip() else "")
    return text


def _take_out(text: str, handlers: Iterable[str], path: str, original: str | None) -> str:
    before = _parsed(original)
    for handler in handlers:
        document = parse(text, path)
        if handler not in runtimes_of(document):
            continue
        expected = copy.deepcopy(document)
        for plugin in PLUGINS:
            toml_tables.forget(expected, plugin, handler, before)
        cut = _cut_text(text, handler)
        text = (
            cut
            if _means_but_empty(cut, expected)
            else toml_tables.edited(text, {handler: None}, plugin_of(document), before)
        )
        if not _means_but_empty(text, expected):
            message = f"{path}: the entry of handler {handler!r} cannot be removed: remove it manually"
            raise InstallError(FailureReason.CONFIG_UNREADABLE, message)
    return text


def _parsed(text: str | None) -> Document:
    try:
        return _loads(text or "")
    except ValueError:
        return {}


def _means_but_empty(text: str, meaning: Document) -> bool:
    """Return whether a text has this meaning, except for empty parent tables of the runtimes."""
    try:
        return _pruned(_loads(text)) == _pruned(meaning)
    except ValueError:
        return False


def _pruned(document: Document) -> Document:
    pruned = copy.deepcopy(document)
    for plugin in PLUGINS:
        toml_tables.prune(pruned, plugin, {})
    return pruned


def _cut_text(text: str, handler: str, *, keep_comments: bool = False) -> str:
    for plugin in PLUGINS:
        path = ("plugins", plugin, "containerd", "runtimes", handler)
        text = toml_text.cut_tables(text, path, comment=FOREIGN_COMMENT, keep_comments=keep_comments)
    return text


def _runtimes(document: Mapping[str, Any], plugin: str) -> Mapping[str, Any]:
    value: Mapping[str, Any] | None = toml_tables.at(document, ("plugins", plugin, "containerd", "runtimes"))
    return {} if value is None else value


def _runtimes_in(document: Any, plugin: str) -> Any:  # noqa: ANN401 (a dict or tomlkit's own)
    for key in ("plugins", plugin, "containerd", "runtimes"):
        if key not in document:
            document[key] = {}
        document = document[key]
    return document
