"""The state of a node, frozen: the complete input of ``plan``.

Pure data. Created by ``gather``. Paths are the node's own, contents are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from node_installer.domain.presets import Preset
from node_installer.domain.process import Process
from node_installer.domain.refusal import Refusal
from node_installer.domain.state import Journal, State
from trellis.installer_api.parse_int import whole


@dataclass(frozen=True, slots=True)
class Live:
    """The running runtime: its version, and ``runtime_type`` by handler (None if it does not report them).

    ``systemd_cgroup``: its default runtime has systemd create the cgroups of containers.
    """

    version: str
    runtimes: Mapping[str, str] | None
    systemd_cgroup: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """The first three numbers of the version; fewer if it has fewer."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])

    @property
    def major(self) -> int:
        """The first number of the version, 0 without one."""
        return whole(self.version.lstrip("v").partition(".")[0]) or 0


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """The restart of this node's runtime: ``kind`` as in the preset's table, and the command on the node."""

    kind: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """One node at one time.

    ``base``: directory of Trellis. ``base_problem``: why it is unusable. ``files``: every file that is read, edited or
    removed by name. ``imports``: patterns of files that the configuration imports. ``imported``: those files, in the
    order in which containerd reads them, so that a later one has precedence. ``binaries``: digest of each shim of
    Trellis or of another installer. ``running``: PIDs by the path of the executable, or of the first argument.
    ``executing``: processes whose executable is certain. ``directories``: existing directories, of those that Trellis
    would create. ``has_cgroup_v2``: all controllers are in the hierarchy of v2. ``has_system_bus``: D-Bus has a socket.
    ``exposed``: users other than root may read the state. ``refusal``: a configuration with which the runtime did not
    start recently.
    """

    preset: Preset
    config: str
    arch: str
    base: str
    base_problem: str = ""
    free_bytes: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    binaries: Mapping[str, str] = field(default_factory=dict)
    running: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    executing: Mapping[str, tuple[Process, ...]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()
    state: State = field(default_factory=State)
    journal: Journal | None = None
    live: Live | None = None
    restart: RestartCommand | None = None
    has_cgroup_v2: bool = False
    has_system_bus: bool = False
    exposed: bool = False
    refusal: Refusal | None = None

    @property
    def own_directories(self) -> tuple[str, ...]:
        """Directories that Trellis creates: the missing ones, or all if the state directory already exists."""
        layout = Layout(self.base)
        if layout.own in self.directories:
            return layout.folders
        return tuple(path for path in layout.folders if path not in self.directories)

    def text(self, path: str) -> str | None:
        """Return a file as text, None if it does not exist. Invalid UTF-8 is preserved in both directions."""
        content = self.files.get(path)
        return None if content is None else content.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of Trellis below the base directory."""

    base: str

    @property
    def bin(self) -> str:
        """Directory of the shims."""
        return f"{self.base}/bin"

    @property
    def own(self) -> str:
        """Directory of state, journal and backups."""
        return f"{self.base}/installer"

    @property
    def state(self) -> str:
        """The state file."""
        return f"{self.own}/state.json"

    @property
    def journal(self) -> str:
        """The journal of an unfinished run."""
        return f"{self.own}/journal.json"

    @property
    def backups(self) -> str:
        """Directory of the files that an unfinished run replaced."""
        return f"{self.own}/backup"

    @property
    def folders(self) -> tuple[str, ...]:
        """The directories with names of Trellis, outermost first."""
        return (self.base, self.bin, self.own)

    def shim(self, handler: str) -> str:
        """Return the path of a handler's shim, for all versions: a new version needs no restart of the runtime."""
        return f"{self.bin}/containerd-shim-{handler}"
