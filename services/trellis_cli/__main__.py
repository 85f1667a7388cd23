"""Starts the ``trellis`` command line."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Entry point of the console script."""
    end_at_sigterm()  # before the slow imports
    import sys

    try:
        from trellis.runtime import gc

        with gc.importing():
            from trellis_cli.command_line import main as run
            from trellis_cli.common.pipe import end_if_unwritable

        end_if_unwritable()
        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # during an import; 130 is EXIT_INTERRUPTED
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
