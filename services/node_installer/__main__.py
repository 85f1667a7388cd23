"""Starts the installer."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Entry point of the console script and of the image."""
    end_at_sigterm()  # before what takes its time to import
    from node_installer.command_line import main as run

    run()


if __name__ == "__main__":
    main()
