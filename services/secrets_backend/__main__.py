"""Entry point of secrets_backend as a process of its own."""

from __future__ import annotations

from trellis.installer_api.pid1 import end_at_sigterm


def main() -> None:
    """Run the service; the console script calls this."""
    end_at_sigterm()  # before the slow imports
    from trellis.runtime import gc

    with gc.importing():
        from secrets_backend.app import create_app
        from secrets_backend.settings import Settings
        from trellis.runtime.run import run_alone

    run_alone(Settings, create_app)


if __name__ == "__main__":
    main()
