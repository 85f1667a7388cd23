"""The tables of the CRI plugin's runtimes in a parsed file: removed, or added if an edit of the text is not possible.

Pure: documents and text in and out. Called by ``config``, which verifies the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CRI_V1: Final = "cri"
CRI_V2: Final = "io.containerd.grpc.v1.cri"
CRI_V3: Final = "io.containerd.cri.v1.runtime"
PLUGINS: Final = (CRI_V3, CRI_V2, CRI_V1)
BYTE_ORDER_MARK: Final = "\ufeff"
"""containerd 1 ignores it at the beginning of a file, containerd 2 rejects the file (1.6.20 and 2.4.2 do)."""

Document = dict[str, Any]


def way_to_runtimes(plugin: str) -> tuple[str, ...]:
    """Return the keys that lead to a plugin's runtimes."""
    return ("plugins", plugin, "containerd", "runtimes")


def at(document: Any, way: tuple[str, ...]) -> Any:  # noqa: ANN401 (a dict or tomlkit's own)
    """Return the table at a path of keys, None if it does not exist."""
    for key in way:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else None


def edited(text: str, changes: Mapping[str, Document | None], plugin: str, before: Document) -> str:
    """Return the text edited in place, for files written with inline tables or dotted keys."""
    # Imported here: the import is a third of the start time, and ordinary files do not need it.
    import tomlkit  # noqa: PLC0415
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document: Any = tomlkit.parse(text.removeprefix(BYTE_ORDER_MARK))
        for handler, value in changes.items():
            if value is None:
                for name in PLUGINS:
                    forget(document, name, handler, before)
            else:
                _put_inline(document, (*way_to_runtimes(plugin), handler), value)
        byte_order_mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        return byte_order_mark + tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError, ValueError):
        return text


def _put_inline(document: Any, path: tuple[str, ...], value: Document) -> None:  # noqa: ANN401 (a dict or tomlkit's own)
    """Set a value, as inline tables: they are valid inside of inline and of regular tables alike."""
    import tomlkit  # noqa: PLC0415

    *parents, last = path
    for key in parents:
        if key not in document:
            document[key] = tomlkit.inline_table()
        document = document[key]
    table = tomlkit.inline_table()
    for key, item in value.items():
        if isinstance(item, dict):
            inner = tomlkit.inline_table()
            inner.update(item)
            table[key] = inner
        else:
            table[key] = item
    document[last] = table


def forget(document: Any, plugin: str, handler: str, before: Mapping[str, Any]) -> None:  # noqa: ANN401 (see above)
    """Remove a handler, and the tables that only its header created."""
    runtimes = at(document, way_to_runtimes(plugin))
    if runtimes is not None and handler in runtimes:
        del runtimes[handler]
        prune(document, plugin, before)


def prune(document: Any, plugin: str, before: Mapping[str, Any]) -> None:  # noqa: ANN401 (see above)
    """Remove empty parent tables of a plugin's runtimes, innermost first, unless they existed before."""
    way = way_to_runtimes(plugin)
    for depth in range(len(way), 0, -1):
        outer, inner = at(document, way[: depth - 1]), at(document, way[:depth])
        if inner is None or outer is None:
            continue
        if inner or at(before, way[:depth]) is not None:
            return
        del outer[way[depth - 1]]
