"""Every parser that is fuzzed, by name."""

from __future__ import annotations

from typing import Any, Final

from fuzz.target import Target
from fuzz.targets import archives, bus, converted, guests, installer, keys, lattice, resources, wasm, written

_MODULES: Final = (bus, lattice, converted, resources, written, installer, archives, wasm, guests, keys)
TARGETS: Final[dict[str, Target[Any]]] = {target.name: target for module in _MODULES for target in module.TARGETS}
