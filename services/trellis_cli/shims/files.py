"""Downloads the files of a release and checks them as the installer does on a node.

In: a release. Out: nothing; an error for a file that a node would reject. Called by ``trellis shims add``. Invariant:
the code of the installer checks: a Shim that is written installs on nodes that reach the same addresses.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from node_installer.domain.errors import InstallError
from node_installer.fetch.stage import Stage
from node_installer.fetch.web import Web
from trellis.installer_api.spec import Source, WantedShim, shim_owner
from trellis_cli.common.errors import CommandError
from trellis_cli.common.messages import print_note
from trellis_cli.shims.model import Release


def check_files(release: Release, shim: str, web: Web) -> None:
    """Download each file of a release, compare its checksum, and find the shim in it.

    Raises:
        CommandError: a file cannot be downloaded, has another checksum, or has no shim for its architecture.
    """
    for file in release.files:
        print_note(f"checking {file.location}")
        source = Source(file.location, file.arch, file.sha256)
        wanted = WantedShim(shim, release.handler, release.version, shim_owner(shim), (source,))
        with tempfile.TemporaryDirectory() as work:
            try:
                Stage(Path(work), web).fetch(wanted, file.arch)
            except InstallError as error:
                raise CommandError(f"nothing was changed: {error.message}") from error
