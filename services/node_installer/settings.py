"""Settings of the installer. No other module of the installer reads the environment.

In: the command line and the environment. Out: frozen settings, and the specification as text. Called by
``command_line``.
Without pydantic-settings, which the other services use: its import is slower than a whole run (ADR 18).
"""

from __future__ import annotations

import argparse
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

DEFAULT_SPEC: Final = "/etc/trellis/installer/spec.json"
DEFAULT_ROOT: Final = "/mnt/node-root"
DEFAULT_TERMINATION: Final = "/dev/termination-log"
OPERATIONS: Final = ("install", "uninstall", "verify", "inspect")
_FORMER: Final = {"--restart-seconds": "--restart-timeout", "--lock-seconds": "--lock-timeout"}
_ENVIRONMENT: Final = """environment:
  NODE_ROOT                       --node-root
  TRELLIS_INSTALLER_SPEC          specification as JSON (uninstall needs only name and owner of a shim)
  TRELLIS_INSTALLER_SPEC_FILE     file with the specification (default: /etc/trellis/installer/spec.json)
  TRELLIS_INSTALLER_CA_FILE       --ca-file
  TRELLIS_INSTALLER_DOCKER_CONFIG --docker-config
  TRELLIS_INSTALLER_PULL_SECRETS  --pull-secrets
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
  TRACEPARENT, TRELLIS_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_ENDPOINT), OTEL_EXPORTER_OTLP_HEADERS
  OTEL_TRACES_SAMPLER=always_on   export spans even if TRACEPARENT has the sampled flag 0

exit codes: 0 success, 1 failure that a retry may resolve, 2 failure that an immediate retry does not resolve."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run. Durations are in seconds."""

    operation: str
    node_root: Path
    spec_text: str | None
    everything: bool = False
    force: bool = False
    dry_run: bool = False
    json_output: bool = False
    preset: str | None = None
    ca_file: Path | None = None
    docker_config: Path | None = None
    pull_secrets: Path | None = None
    restart_seconds: float = 120.0
    lock_seconds: float = 60.0
    download_seconds: float = 30.0
    termination_log: Path = Path(DEFAULT_TERMINATION)
    traceparent: str | None = None
    otlp_endpoint: str | None = None
    otlp_headers: tuple[tuple[str, str], ...] = ()
    samples_always: bool = False


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings of the command line and the environment; the command line has precedence.

    Raises:
        SystemExit: with 2, for an invalid command line.
        InstallError: ``InvalidSpec``: the file with the specification cannot be read.
    """
    chosen = _parser().parse_args(arguments)
    ca_file = chosen.ca_file or environment.get("TRELLIS_INSTALLER_CA_FILE")
    docker_config = chosen.docker_config or environment.get("TRELLIS_INSTALLER_DOCKER_CONFIG")
    pull_secrets = chosen.pull_secrets or environment.get("TRELLIS_INSTALLER_PULL_SECRETS")
    endpoint = environment.get("TRELLIS_OTLP_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return Settings(
        operation=chosen.operation,
        node_root=Path(chosen.node_root or environment.get("NODE_ROOT") or DEFAULT_ROOT),
        spec_text=_spec_text(chosen.operation, chosen.spec, environment, everything=chosen.all),
        everything=chosen.all,
        force=chosen.force,
        dry_run=chosen.dry_run,
        json_output=chosen.output == "json",
        preset=chosen.preset,
        ca_file=Path(ca_file) if ca_file else None,
        docker_config=Path(docker_config) if docker_config else None,
        pull_secrets=Path(pull_secrets) if pull_secrets else None,
        restart_seconds=chosen.restart_timeout,
        lock_seconds=chosen.lock_timeout,
        termination_log=Path(chosen.termination_log),
        traceparent=environment.get("TRACEPARENT"),
        otlp_endpoint=endpoint or None,
        samples_always=environment.get("OTEL_TRACES_SAMPLER") == "always_on",
        otlp_headers=_headers(environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")),
    )


class _Renamed(argparse.Action):
    """A former option: an error that names the present one."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        """End the program with status 2."""
        del namespace, values
        parser.error(f"argument {option}: renamed to {self.const}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trellis-node-installer",
        description="Install Wasm shims on a node, verify them, and uninstall them.",
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operation", choices=OPERATIONS, help="operation; all are idempotent")
    parser.add_argument(
        "--node-root", metavar="DIR", help=f"mount point of the node's root file system ({DEFAULT_ROOT})"
    )
    parser.add_argument("--spec", metavar="FILE|JSON", help="specification: a file, JSON, or - for standard input")
    parser.add_argument("--dry-run", action="store_true", help="show the changes as a diff without making them")
    parser.add_argument(
        "--all", action="store_true", help="uninstall: everything that Trellis installed, for all owners"
    )
    parser.add_argument("--force", action="store_true", help="uninstall: stop pods that still use the shims")
    parser.add_argument("--preset", metavar="NAME", help="preset of the distribution, if it is not detected")
    parser.add_argument("--ca-file", metavar="FILE", help="CA certificates to trust besides those of the system")
    parser.add_argument("--docker-config", metavar="FILE", help="registry credentials (config.json of a pull secret)")
    parser.add_argument(
        "--pull-secrets",
        metavar="DIR",
        help="directory with <pullSecret>/config.json for each pull secret of the specification",
    )
    parser.add_argument(
        "--restart-timeout", type=float, default=120.0, help="seconds to wait for the runtime to start (120)"
    )
    parser.add_argument("--lock-timeout", type=float, default=60.0, help="seconds to wait for another installer (60)")
    for former, present in _FORMER.items():
        parser.add_argument(former, action=_Renamed, nargs="?", const=present, help=argparse.SUPPRESS)
    parser.add_argument("--termination-log", metavar="FILE", default=DEFAULT_TERMINATION, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format of standard output")
    return parser


def _spec_text(operation: str, given: str | None, environment: Mapping[str, str], *, everything: bool) -> str | None:
    """Return the specification, None if the operation does not need one."""
    if given is None and (inline := environment.get("TRELLIS_INSTALLER_SPEC")):
        return inline
    if given is not None and given.lstrip().startswith("{"):
        return given
    if given == "-":
        return sys.stdin.read()
    optional = operation in ("verify", "inspect") or everything
    path = Path(given or environment.get("TRELLIS_INSTALLER_SPEC_FILE") or DEFAULT_SPEC)
    if given is None and optional and not path.exists():
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "it is not UTF-8"
        message = f"the specification cannot be read from {path}: {what}; set --spec or TRELLIS_INSTALLER_SPEC"
        if operation == "uninstall":
            message += ", or uninstall everything with --all"
        raise InstallError(FailureReason.INVALID_SPEC, message) from error


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    return tuple((name.strip(), urllib.parse.unquote(value.strip())) for name, _, value in pairs)
