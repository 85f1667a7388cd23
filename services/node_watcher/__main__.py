"""Runs node_watcher alone."""

from __future__ import annotations

from node_watcher.app import create_app
from node_watcher.settings import Settings
from trellis.runtime import run_alone


def main() -> None:
    """Entry point of the console script."""
    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
