"""Selects the file of a node for the entries of runtimes, and finds the files that define a handler already.

Pure: an inspection in, a target out. Called by ``plan`` and ``verify``.
Source: containerd's import rules. containerd 2 merges imported files key by key; containerd 1 replaces a plugin's whole
section by the imported one, so a drop-in of Trellis would remove the node's own CRI settings (1.6.36 and 1.7.27 do).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from node_installer.containerd import config, globs, toml_tables
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection
from node_installer.domain.presets import Style
from trellis.installer_api.result import FailureReason

_NAMES: Final = ("trellis.toml", "90-trellis.toml")
K0S_MANAGED: Final = "# k0s_managed=true"
BASE_TEMPLATE: Final = '{{ template "base" . }}\n'
_IMPORTS: Final = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


@dataclass(frozen=True, slots=True)
class Target:
    """File for the entries. ``style``: its format. ``initial``: its text if it does not exist yet."""

    path: str
    style: Style
    version: int
    initial: str = ""

    @property
    def plugin(self) -> str:
        """ID of the CRI plugin in a new file."""
        return config.plugin_for(self.version)


def choose(found: Inspection) -> Target:
    """Return the file for entries on this node.

    Raises:
        InstallError: ``ConfigUnreadable``.
    """
    _check_byte_order_mark(found)
    match found.preset.style:
        case Style.TEMPLATE:
            return _template(found)
        case Style.DROPIN:
            return _dropin_directory(found)
        case Style.FILE:
            return _main_file(found)


def imported_name(pattern: str) -> str | None:
    """Return the path of a drop-in of Trellis that an import pattern matches, None if it matches no name of Trellis."""
    folder, _, name = pattern.rpartition("/")
    if globs.has_meta(folder) or not globs.has_meta(name):
        return None
    candidates = (*_NAMES, name.replace("*", "trellis"))
    fitting = (
        candidate for candidate in candidates if not globs.has_meta(candidate) and globs.matches(name, candidate)
    )
    return next((f"{folder}/{item}" for item in fitting if item.endswith(".toml")), None)


def definitions(found: Inspection, target: Target) -> dict[str, dict[str, str]]:
    """Return ``runtime_type`` by handler, for each configuration file that defines any."""
    others = [path for path in sorted(found.files) if path.endswith((".toml", ".tmpl"))]
    result: dict[str, dict[str, str]] = {}
    for path in dict.fromkeys([found.config, target.path, *found.state.configs, *found.imported, *others]):
        text = found.text(path)
        if text is None:
            continue
        runtimes = _runtimes(text, path)
        if runtimes:
            result[path] = dict(runtimes)
    return result


def _runtimes(text: str, path: str) -> Mapping[str, str]:
    if path.endswith(".tmpl"):
        return config.runtimes_of_template(text)
    return config.runtimes_of(config.parse(text, path))


def _main_file(found: Inspection) -> Target:
    text = found.text(found.config)
    if text is None:
        # containerd runs with its defaults; only its version determines the format that it reads.
        modern = found.live is not None and found.live.major >= 2
        # Without a main file containerd 2 imports this directory; a main file of Trellis must not end that.
        version = 3 if modern else 2
        return Target(found.config, Style.FILE, version, _header(version) + (_IMPORTS if modern else ""))
    document = config.parse(text, found.config)
    version = config.version_of(document)
    if version >= 3 or (found.live is not None and found.live.major >= 2):
        dropin = _dropin(found.imports, version, _header(version))
        if dropin is not None:
            return dropin
    else:
        # containerd 1 uses the last imported file that has a CRI section.
        for path in reversed(found.imported):
            imported = config.parse(found.text(path) or "", path)
            plugins = imported.get("plugins")
            if isinstance(plugins, dict) and config.plugin_of(imported) in plugins:
                return Target(path, Style.FILE, config.version_of(imported))
    return Target(found.config, Style.FILE, version)


def _check_byte_order_mark(found: Inspection) -> None:
    """Reject a file with which containerd 2 does not start: it may not have been restarted since the file changed."""
    for path in (found.config, *found.imported):
        text = found.text(path)
        if text is None or not text.startswith(toml_tables.BYTE_ORDER_MARK):
            continue
        modern = found.live.major >= 2 if found.live else config.version_of(config.parse(text, path)) >= 3
        if modern:
            message = (
                f"{path} begins with a byte order mark, and containerd 2 does not start with it: "
                "remove the first three bytes of the file, or save it as UTF-8 without a mark"
            )
            raise InstallError(FailureReason.CONFIG_UNREADABLE, message)


def _template(found: Inspection) -> Target:
    rendered = found.text(found.config) or ""
    version = config.version_of(config.parse(rendered, found.config))
    if version >= 3:
        dropin = _dropin(found.imports, version, _header(version))
        if dropin is not None:
            return dropin
    folder = found.config.rpartition("/")[0]
    name = "config-v3.toml.tmpl" if version >= 3 else "config.toml.tmpl"
    return Target(f"{folder}/{name}", Style.TEMPLATE, version, BASE_TEMPLATE)


def _dropin_directory(found: Inspection) -> Target:
    text = found.text(found.config)
    if text is not None and not text.startswith(K0S_MANAGED):
        return _main_file(found)
    version = config.version_of(config.parse(text, found.config)) if text is not None else 1
    if version < 2:
        # Not written yet, or by a version that leaves it out: k0s 1.36 (containerd 2) refuses anything but 3.
        version = 3 if found.live is not None and found.live.major >= 2 else 2
    return Target(f"{found.preset.dropins}/trellis.toml", Style.DROPIN, version, _header(version))


def _dropin(imports: tuple[str, ...], version: int, initial: str) -> Target | None:
    for pattern in imports:
        path = imported_name(pattern)
        if path is not None:
            return Target(path, Style.DROPIN, version, initial)
    return None


def _header(version: int) -> str:
    return f"version = {version}\n"


BEGINNINGS: Final = frozenset(
    {BASE_TEMPLATE} | {_header(version) + rest for version in range(1, 5) for rest in ("", _IMPORTS)}
)
"""All initial texts of files of Trellis, for any version of containerd at the time of their creation."""
