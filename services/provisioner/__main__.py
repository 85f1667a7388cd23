"""Runs provisioner alone."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Run the console script."""
    end_at_sigterm()  # before the slow imports
    from trellis.runtime import gc

    with gc.importing():
        from provisioner.app import create_app
        from provisioner.settings import Settings
        from trellis.runtime.run import run_alone

    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
