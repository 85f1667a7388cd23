"""Entry point of host_manager as a process of its own."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Run the service; the console script calls this."""
    end_at_sigterm()  # before the slow imports
    from trellis.runtime import gc

    with gc.importing():
        from host_manager.app import create_app
        from host_manager.settings import Settings
        from trellis.runtime.run import run_alone

    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
