"""Downloads all shims that a node needs; the errors of all of them are reported together.

In: an inspection and a specification. Out: files outside of the node. Called by ``operations``; ``stage`` fetches each.
"""

from __future__ import annotations

from pathlib import Path

from node_installer.domain.errors import InstallError, about, combined
from node_installer.domain.inspection import Inspection
from node_installer.domain.plan import Staged, needed
from node_installer.fetch.stage import Stage, source_of
from node_installer.fetch.web import Web
from node_installer.session import Session
from node_installer.settings import Settings
from trellis.installer_api.result import FailureReason
from trellis.installer_api.spec import InstallSpec


def unfetched(found: Inspection, spec: InstallSpec) -> dict[str, Staged]:
    """Return placeholders for the downloads, as far as a plan needs them.

    Raises:
        InstallError: a required shim has no source, or none that is allowed.
    """
    errors: list[InstallError] = []
    for wanted, _ in needed(found, spec):
        try:
            with about(wanted.handler):
                source_of(wanted, found.arch, require_checksum=spec.require_checksum)
        except InstallError as error:
            errors.append(error.bare())
    if errors:
        raise combined(errors)
    return {wanted.handler: Staged("", 0) for wanted, _ in needed(found, spec)}


def fetched(session: Session, found: Inspection, spec: InstallSpec, work: Path) -> dict[str, Staged]:
    """Return the shims that the node needs by handler, downloaded into a directory and checked.

    Raises:
        InstallError: some of them failed; the error contains all of these.
    """
    settings = session.settings
    web = Web(
        allow_http=spec.allow_http,
        ca_file=settings.ca_file,
        seconds=settings.download_seconds,
        pause=session.timings.pause,
    )
    stage = Stage(work, web, spec.require_checksum, _docker_config(settings), settings.pull_secrets, session.image_root)
    staged: dict[str, Staged] = {}
    errors: list[InstallError] = []
    for wanted, reason in needed(found, spec):
        session.report_progress(f"fetching the shim of {wanted.handler} ({reason})")
        try:
            with session.tracer.span("Fetch", **{"trellis.handler": wanted.handler}) as span, about(wanted.handler):
                staged[wanted.handler] = stage.fetch(wanted, found.arch)
                span.attributes["trellis.bytes"] = staged[wanted.handler].size
        except InstallError as error:
            if not error.shims:
                raise
            # The remaining shims are still downloaded, so that the result has all errors.
            errors.append(error.bare())
    if errors:
        raise combined(errors)
    return staged


def _docker_config(settings: Settings) -> bytes | None:
    if settings.docker_config is None:
        return None
    path = settings.docker_config
    # A pull secret is mounted as a directory with one of these files.
    for candidate in (path, path / ".dockerconfigjson", path / "config.json"):
        if candidate.is_file():
            return candidate.read_bytes()
    message = f"the registry credentials {path} do not exist"
    raise InstallError(FailureReason.DOWNLOAD_FAILED, message)
