"""What was found on a node, frozen: all that ``plan`` may know.

Pure data. Made by ``gather``. Paths are the node's own, contents are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from node_installer.domain.presets import Preset
from node_installer.domain.process import Process
from node_installer.domain.refusal import Refusal
from node_installer.domain.state import Journal, State
from trellis.installer_api.parse_int import whole


@dataclass(frozen=True, slots=True)
class Live:
    """The running runtime: its version, and ``runtime_type`` by handler (None where it does not tell)."""

    version: str
    runtimes: Mapping[str, str] | None

    @property
    def major(self) -> int:
        """The first number of the version, 0 where there is none."""
        return whole(self.version.lstrip("v").partition(".")[0]) or 0


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """How this node's runtime is restarted: ``kind`` as in the preset's table, and the command on the node."""

    kind: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """One node at one moment.

    ``base``: our directory. ``base_problem``: why there is none to be had. ``files``: every file that is read, edited
    or removed by name. ``imports``: patterns of files the configuration imports. ``imported``: those files, in the
    order in which containerd reads them, so that a later one wins. ``binaries``: digest of each shim that we or another
    installer put there. ``running``: processes by the path of what they run, or say they run. ``executing``: those of
    whom that is certain. ``directories``: which of the directories we would make exist. ``exposed``: others than root
    may read our state. ``refusal``: what the runtime did not come up with a short time ago.
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
    exposed: bool = False
    refusal: Refusal | None = None

    @property
    def own_directories(self) -> tuple[str, ...]:
        """Our directories that nobody made before us: those that are missing, or all where we have been already."""
        layout = Layout(self.base)
        if layout.own in self.directories:
            return layout.folders
        return tuple(path for path in layout.folders if path not in self.directories)

    def text(self, path: str) -> str | None:
        """Return a file as text, None if there is none. Bytes that are no UTF-8 stay what they are, in and out."""
        content = self.files.get(path)
        return None if content is None else content.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things of Trellis lie below the base directory."""

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
        """The journal of a run that is not over."""
        return f"{self.own}/journal.json"

    @property
    def backups(self) -> str:
        """Directory of what a run that is not over replaced."""
        return f"{self.own}/backup"

    @property
    def folders(self) -> tuple[str, ...]:
        """The directories that are ours by their names, outermost first."""
        return (self.base, self.bin, self.own)

    def shim(self, handler: str) -> str:
        """Path of a handler's shim: it stays over versions, so a new version needs no restart of the runtime."""
        return f"{self.bin}/containerd-shim-{handler}"
