"""Starts the installer."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Run the installer, as the console script and in the image."""
    end_at_sigterm()  # before the slow imports
    from node_installer.command_line import main as run

    run()


if __name__ == "__main__":
    main()
