"""Runs service_reflector alone."""

from __future__ import annotations

from service_reflector.app import create_app
from service_reflector.settings import Settings
from trellis.runtime import run_alone


def main() -> None:
    """Entry point of the console script."""
    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
