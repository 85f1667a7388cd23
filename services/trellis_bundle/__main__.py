"""Starts the ``trellis`` command line."""

from __future__ import annotations

from typing import Final

from trellis.init_process import end_at_sigterm

_INTERRUPTED: Final = 130
"""As ``trellis_bundle.cli_errors`` has it, which takes its time to import."""


def main() -> None:
    """Entry point of the console script."""
    end_at_sigterm()  # before what takes its time to import
    try:
        from trellis import heap

        with heap.importing():
            from trellis_bundle.command_line import main as run

        run()
    except KeyboardInterrupt:  # where no command can answer for itself: while it is imported
        raise SystemExit(_INTERRUPTED) from None


if __name__ == "__main__":
    main()
