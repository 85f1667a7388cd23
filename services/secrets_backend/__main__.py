"""Runs secrets_backend alone."""

from __future__ import annotations

from secrets_backend.app import create_app
from secrets_backend.settings import Settings
from trellis.runtime import run_alone


def main() -> None:
    """Entry point of the console script."""
    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
