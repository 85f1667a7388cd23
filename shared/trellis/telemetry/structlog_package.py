"""Imports ``structlog`` without its traceback renderer for terminals.

Out: the package and its types, for ``trellis.telemetry``, which renders text itself. structlog imports all of rich and
pygments if they are installed, as they are for the command line: 4.2 MiB and 85 modules in each process (version
26.1.0). During the import rich is hidden, which structlog supports.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_RICH: Final = "rich"

_modules: dict[str, Any] = sys.modules
_hidden = _RICH not in _modules
if _hidden:
    _modules[_RICH] = None  # an import of it then raises ModuleNotFoundError ("The module cache" of Python's reference)
try:
    import structlog
    from structlog.typing import EventDict, Processor, WrappedLogger
finally:
    if _hidden:
        del _modules[_RICH]

__all__ = ["EventDict", "Processor", "WrappedLogger", "structlog"]
