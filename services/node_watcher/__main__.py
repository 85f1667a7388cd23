"""Runs node_watcher alone."""

from __future__ import annotations

import asyncio

from node_watcher.app import create_app
from node_watcher.settings import Settings
from trellis.runtime import run_services
from trellis.settings import exit_on_settings_error, load
from trellis.telemetry import setup_logging


@exit_on_settings_error()
def main() -> None:
    """Read the settings, set up logging, run until SIGTERM."""
    settings = load(Settings)
    setup_logging(log_format=settings.log_format, level=settings.log_level)
    asyncio.run(run_services([create_app(settings)], health_port=settings.health_port))


if __name__ == "__main__":
    main()
