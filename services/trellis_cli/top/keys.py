"""The keys of `trellis top`: maps terminal input to the next screen.

In: bytes, the screen, the ids in its sheet. Out: names of keys; the next screen, None at the end. Pure except for
``listening``, which switches a terminal to single keys. Called by ``top``.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from trellis_cli.top.model import Kind, Wanted, sorts

PAGE: Final = 10
_BLOCK: Final = 1024
_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_NAMES: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[H": "home",
    "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1b[Z": "left",
    "\t": "right", "\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace",
}  # fmt: skip
_END: Final = ["escape", "q"]
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SHEETS: Final = tuple(Kind)
DIGITS: Final = 10
"""Sheets with a digit; the arrow keys select further ones."""
_NUMBERS: Final = {str(number % DIGITS): kind for number, kind in enumerate([*Kind][:DIGITS], 1)}
"""By digit; 0 is the tenth."""


@dataclass(frozen=True, slots=True)
class Screen:
    """State of the screen. ``selected``: an id, possibly of a deleted entity; ``typing``: keys edit the filter."""

    kind: Kind = Kind.NODES
    wanted: Wanted = field(default_factory=Wanted)
    selected: str = ""
    typing: bool = False

    def place(self, ids: Sequence[str]) -> int:
        """Return the index of the selected line: the first if the selected entity does not exist."""
        return ids.index(self.selected) if self.selected in ids else 0


def keys(text: str) -> list[str]:
    """Return the names of keys, letters as they are; unknown sequences are ignored."""
    found = (_NAMES.get(item, item) for item in _KEY.findall(text))
    return [item for item in found if item in _NAMES.values() or (len(item) == 1 and item.isprintable())]


def press(screen: Screen, key: str, ids: Sequence[str], kinds: Sequence[Kind] = _SHEETS) -> Screen | None:
    """Return the screen after a key, None to quit; ``kinds``: the sheets of the cluster."""
    if screen.typing:
        return _type(screen, key)
    match key:
        case "q":
            return None
        case "left" | "right":
            step = 1 if key == "right" else -1
            at = kinds.index(screen.kind) if screen.kind in kinds else -max(step, 0)
            return _sheet(screen, kinds[(at + step) % len(kinds)])
        case "up" | "down" | "page up" | "page down" | "home" | "end":
            return replace(screen, selected=_moved(screen, key, ids))
        case "s":
            return _sorted(screen)
        case "r":
            return replace(screen, wanted=replace(screen.wanted, reverse=not screen.wanted.reverse))
        case "/":
            return replace(screen, typing=True)
        case "escape":
            return replace(screen, wanted=replace(screen.wanted, terms=""))
        case _ if _NUMBERS.get(key) in kinds:
            return _sheet(screen, _NUMBERS[key])
        case _:
            return screen


def _sheet(screen: Screen, kind: Kind) -> Screen:
    sort = screen.wanted.sort if screen.wanted.sort in sorts(kind) else "health"
    return replace(screen, kind=kind, selected="", wanted=replace(screen.wanted, sort=sort))


def _sorted(screen: Screen) -> Screen:
    known = sorts(screen.kind)
    at = known.index(screen.wanted.sort) if screen.wanted.sort in known else -1
    return replace(screen, wanted=replace(screen.wanted, sort=known[(at + 1) % len(known)]))


def _moved(screen: Screen, key: str, ids: Sequence[str]) -> str:
    if not ids:
        return ""
    at = screen.place(ids)
    steps = {"up": -1, "down": 1, "page up": -PAGE, "page down": PAGE, "home": -at, "end": len(ids) - 1 - at}
    return ids[min(max(at + steps[key], 0), len(ids) - 1)]


def _type(screen: Screen, key: str) -> Screen:
    terms = screen.wanted.terms
    match key:
        case "enter":
            return replace(screen, typing=False)
        case "escape":
            return replace(screen, typing=False, wanted=replace(screen.wanted, terms=""))
        case "backspace":
            return replace(screen, wanted=replace(screen.wanted, terms=terms[:-1]))
        case _ if len(key) == 1:
            return replace(screen, wanted=replace(screen.wanted, terms=terms + key))
        case _:
            return screen


@contextmanager
def listening(terminal: int, received: Callable[[list[str]], None]) -> Iterator[None]:
    """Switch a terminal to single keys without echo, and restore it afterwards; end of input is the key ``q``.

    Signals that would end the process without cleanup are ``q`` too; Ctrl-C stays a signal, with cleanup.
    """
    former = termios.tcgetattr(terminal)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            block = os.read(terminal, _BLOCK)
        except OSError:
            block = b""
        if not block:
            loop.remove_reader(terminal)
        received(keys(decoder.decode(block)) if block else _END)

    tty.setcbreak(terminal, termios.TCSADRAIN)
    loop.add_reader(terminal, read)
    for number in _ENDING:
        loop.add_signal_handler(number, received, _END)
    try:
        yield
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, former)
