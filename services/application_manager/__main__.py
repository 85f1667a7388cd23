"""Runs application_manager alone."""

from __future__ import annotations

from application_manager.app import create_app
from application_manager.settings import Settings
from trellis.runtime import run_alone


def main() -> None:
    """Entry point of the console script."""
    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
