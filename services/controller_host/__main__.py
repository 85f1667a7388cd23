"""Runs controller_host alone."""

from __future__ import annotations

from controller_host.app import create_app
from controller_host.settings import Settings
from trellis.runtime import run_alone


def main() -> None:
    """Entry point of the console script."""
    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
