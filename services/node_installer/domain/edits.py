"""Computes the new configuration files of a node for its target shims.

Pure: an inspection and entries in, edits out. Called by ``plan`` and ``removal``.
Invariant: when the last entry of Trellis is removed, a file that was not edited since has exactly its former bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from node_installer.containerd import config, toml_tables
from node_installer.containerd.entries import Entry
from node_installer.domain import target
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.presets import PRESETS, Leftover, Style, leftover_of
from node_installer.domain.state import ConfigState, ShimState
from trellis.installer_api.result import FailureReason


@dataclass(frozen=True, slots=True)
class Edits:
    """New contents by path (None: the file is removed), their state, and whether their meaning changes."""

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    configs: Mapping[str, ConfigState] = field(default_factory=dict)
    meaning_changes: bool = False


@dataclass(frozen=True, slots=True)
class Adoption:
    """A handler of another installer: that installer, the path of the shim, and the files that define it."""

    handler: str
    leftover: Leftover
    binary: str
    files: tuple[str, ...]


def entries_of(shims: Mapping[str, ShimState]) -> list[Entry]:
    """Return the entries of these shims in containerd's configuration."""
    return [Entry(handler, shim.path, shim.options) for handler, shim in sorted(shims.items())]


def find_adoptions(found: Inspection, aim: target.Target, handlers: Iterable[str]) -> list[Adoption]:
    """Return the handlers that are adopted from other installers.

    Raises:
        InstallError: ``HandlerConflict``: a user or an unknown installer defined one of them.
    """
    defined = target.definitions(found, aim)
    result = []
    for handler in handlers:
        own = [(path, runtimes[handler]) for path, runtimes in defined.items() if handler in runtimes]
        foreign = [(path, kind) for path, kind in own if not _ours(kind)]
        if not foreign:
            continue
        leftover, binary = _whose(found, aim, handler, foreign)
        if leftover is not None:
            files = tuple(path for path, _ in foreign if not _rendered(found, path))
            result.append(Adoption(handler, leftover, binary, files))
    return result


def edits_for(
    found: Inspection, aim: target.Target, shims: Mapping[str, ShimState], adoptions: list[Adoption]
) -> Edits:
    """Return the edits after which the node's configuration has exactly these shims of Trellis."""
    files: dict[str, bytes | None] = {}
    configs: dict[str, ConfigState] = {}
    changes = False
    elsewhere = {path for path in found.state.configs if path != aim.path}
    for adoption in adoptions:
        elsewhere.update(path for path in adoption.files if path != aim.path)
    if not shims and (aim.path in found.state.configs or any(aim.path in adoption.files for adoption in adoptions)):
        elsewhere.add(aim.path)
    for path in sorted(elsewhere):
        content = _cleared(found, path, [adoption.handler for adoption in adoptions if path in adoption.files])
        changes |= _changes(found, path, content)
        files |= _if_different(found, path, content)
    if shims:
        content = _extended(found, aim, shims, [adoption.handler for adoption in adoptions])
        changes |= _changes(found, aim.path, content)
        files |= _if_different(found, aim.path, content)
        original = _original(found, aim, [adoption.handler for adoption in adoptions])
        configs[aim.path] = ConfigState(original, hashlib.sha256(content).hexdigest())
    return Edits(files, configs, changes)


def _extended(found: Inspection, aim: target.Target, shims: Mapping[str, ShimState], adopted: list[str]) -> bytes:
    text = found.text(aim.path)
    base = aim.initial if text is None else text
    entries = entries_of(shims)
    # Entries that were edited in place, without a section, are removed before they are rewritten.
    former = [*adopted, *found.state.shims]
    if aim.style is Style.TEMPLATE:
        new = config.merged_template(base, entries, plugin=aim.plugin, adopted=former)
    else:
        known = found.state.configs.get(aim.path)
        new = config.merged(base, entries, path=aim.path, adopted=former, original=_text(known))
    return _bytes(new)


def _cleared(found: Inspection, path: str, adopted: list[str]) -> bytes | None:
    """Return a file without entries of Trellis; None if it does not exist, or has no other content."""
    text = found.text(path)
    if text is None:
        return None
    known = found.state.configs.get(path)
    if known and not adopted and hashlib.sha256(found.files[path]).hexdigest() == known.written_sha256:
        return known.original
    rest = _rest(path, text, [*adopted, *(found.state.shims if known else ())], known)
    only_ours = known is not None and known.original is None
    return None if only_ours and _is_empty(rest) else _bytes(rest)


def _original(found: Inspection, aim: target.Target, adopted: list[str]) -> bytes | None:
    """Return the target without entries of Trellis and adopted ones, as it is restored with the last removal."""
    text = found.text(aim.path)
    known = found.state.configs.get(aim.path)
    if text is None:
        return None
    if known and not adopted and hashlib.sha256(found.files[aim.path]).hexdigest() == known.written_sha256:
        return known.original
    rest = _rest(aim.path, text, [*adopted, *(found.state.shims if known else ())], known)
    return None if known and known.original is None and _is_empty(rest) else _bytes(rest)


def _rest(path: str, text: str, handlers: list[str], known: ConfigState | None) -> str:
    if path.endswith(".tmpl"):
        return config.merged_template(text, [], plugin=toml_tables.CRI_V2, adopted=handlers)
    return config.merged(text, [], path=path, adopted=handlers, original=_text(known))


def _is_empty(text: str) -> bool:
    """Return whether a text is only the initial text of a file of Trellis, without content of a user."""
    return not text.strip() or text.strip() in {beginning.strip() for beginning in target.BEGINNINGS}


def _changes(found: Inspection, path: str, content: bytes | None) -> bool:
    before = found.text(path)
    after = None if content is None else content.decode("utf-8", "surrogateescape")
    if before is None or after is None:
        return (before or "").strip() != (after or "").strip()
    return not config.same_meaning(before, after)


def _if_different(found: Inspection, path: str, content: bytes | None) -> dict[str, bytes | None]:
    return {} if found.files.get(path) == content else {path: content}


def _ours(runtime_type: str) -> bool:
    return any(runtime_type.startswith(f"{Layout(base).bin}/") for preset in PRESETS for base in preset.base_dirs)


def _rendered(found: Inspection, path: str) -> bool:
    return found.preset.style is Style.TEMPLATE and path == found.config


def _whose(
    found: Inspection, aim: target.Target, handler: str, foreign: list[tuple[str, str]]
) -> tuple[Leftover | None, str]:
    for path, kind in foreign:
        leftover = leftover_of(kind)
        if leftover is not None:
            return leftover, kind
        if not _rendered(found, path):
            continue
        # k3s and RKE2 define a runtime for each shim in KWasm's directory.
        for binary in found.binaries:
            leftover = leftover_of(binary)
            if leftover is not None and binary.rpartition("/")[2].startswith(f"containerd-shim-{handler}-v"):
                return leftover, binary
        if aim.style is Style.DROPIN:
            return None, ""  # a drop-in overrides the generated configuration
    path, kind = foreign[0]
    raise InstallError(
        FailureReason.HANDLER_CONFLICT,
        f"handler {handler!r} is already defined in {path} (runtime_type {kind!r}), not by Trellis: "
        "remove it there, or choose another handler for the shim",
    )


def _text(known: ConfigState | None) -> str | None:
    content = known.original if known else None
    return None if content is None else content.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
