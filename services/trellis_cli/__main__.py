"""Starts the ``trellis`` command line."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Entry point of the console script."""
    end_at_sigterm()  # before what takes its time to import
    try:
        from trellis.runtime import gc as heap

        with heap.importing():
            from trellis_cli.command_line import main as run

        run()
    except KeyboardInterrupt:  # where no command answers for itself: while it is imported; 130 is EXIT_INTERRUPTED
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
