"""One run of the installer: settings, operation, summary, termination message, exit code.

In: arguments and the environment. Out: an exit status, and in a pod a termination message. Called by ``__main__``.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version

from node_installer.domain import report
from node_installer.domain.errors import InstallError
from node_installer.operations import perform
from node_installer.session import Session
from node_installer.settings import DEFAULT_TERMINATION, Settings, read_settings
from node_installer.spans import Tracer
from trellis.installer_api.redaction import redact_url
from trellis.installer_api.result import EXIT_FINAL, InstallResult, Outcome


def main() -> None:
    """Run the operation that the arguments name, and exit."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except InstallError as error:
        result = InstallResult(sys.argv[1], Outcome.FAILED, error.reason, error.message)
        _leave_message(result, DEFAULT_TERMINATION)
        _print(report.summary_of(result))
        sys.exit(exit_code(result))
    tracer = Tracer(
        settings.otlp_endpoint,
        settings.traceparent,
        _version(),
        dict(settings.otlp_headers),
        settings.ca_file,
        settings.samples_always,
    )
    session = Session(settings, _print, tracer)
    session.interruption.listen()
    result = perform(session)
    _finish(settings, result)
    problem = tracer.send()
    if problem:
        _print(f"note: the spans of this run could not be sent: {redact_url(problem)}")
    sys.exit(exit_code(result))


def exit_code(result: InstallResult) -> int:
    """Return 0 for success, 1 if a retry may help, 2 if an immediate retry does not."""
    if result.ok:
        return 0
    return EXIT_FINAL if result.is_final else 1


def _finish(settings: Settings, result: InstallResult) -> None:
    _leave_message(result, str(settings.termination_log))
    if settings.json_output:
        sys.stdout.write(result.to_line(1 << 20) + "\n")
    _print(redact_url(report.summary_of(result)))


def _leave_message(result: InstallResult, path: str) -> None:
    """Write the termination message if its file exists, which it does only in a pod."""
    if not os.path.exists(path):  # noqa: PTH110
        return
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(result.to_line())
    except OSError as error:
        _print(f"note: no termination message: {path}: {error.strerror}")


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _version() -> str:
    try:
        return version("trellis-wasm")
    except PackageNotFoundError:
        return "unknown"
