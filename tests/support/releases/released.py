"""A release of this commit in a registry, made as maintainers make it, and what is in it.

In: the registry, an empty folder. Out: the files of the release, its references, the contents of its images. Called by
tests of releases.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.progress import Lines

ROOT: Final = Path(__file__).parents[3]
VERSION: Final = "0.9.1-rc.2"
PYTHON_VERSION: Final = "0.9.1rc2"
"""Not the version of the checkout: a release sets it."""
PASSWORD: Final = "correct horse"


def program(name: str) -> str:
    """Return the path of a program; build it if needed."""
    return str(tools.ensure(name, Lines()))


def run(*arguments: str, given: str = "") -> str:
    """Run a program; return what it printed."""
    done = subprocess.run(arguments, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Keys:
    """A pair of keys of cosign, and the file with the password."""

    private: Path
    public: Path
    password: Path


def make_keys(folder: Path) -> Keys:
    """Make keys in a folder."""
    folder.mkdir()
    keys = Keys(folder / "cosign.key", folder / "cosign.pub", folder / "password")
    keys.password.write_text(f"{PASSWORD}\n")
    command = [program("cosign"), "generate-key-pair"]
    subprocess.run(command, input=PASSWORD, cwd=folder, capture_output=True, text=True, check=True)
    return keys


def make_release(registry: str, keys: Keys, output: Path) -> Released:
    """Run ``make release``'s command."""
    where = ["--registry", registry, "--key", str(keys.private), "--password-file", str(keys.password)]
    command = [sys.executable, "-m", "trellis_tools.release", VERSION, *where, "--output", str(output)]
    path = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert PASSWORD not in done.stdout + done.stderr
    return Released(registry, output / VERSION, keys, json.loads(done.stdout))


@dataclass(frozen=True)
class Released:
    """A release: its registry, the folder of its files, and the output of the command."""

    registry: str
    folder: Path
    keys: Keys
    report: dict[str, Any]

    def reference(self, key: str) -> str:
        """Return the reference by digest of an artifact."""
        return str(self.report["artifacts"][key]["reference"])

    def digest(self, key: str) -> str:
        """Return the digest of an artifact."""
        return self.reference(key).partition("@")[2]

    def blob(self, name: str, digest: str) -> Path:
        """Return a blob of a layout."""
        return self.folder / "oci" / name / "blobs/sha256" / digest.removeprefix("sha256:")

    def document(self, name: str, digest: str) -> dict[str, Any]:
        """Return a document of a layout."""
        found: dict[str, Any] = json.loads(self.blob(name, digest).read_text())
        return found

    def manifests(self, key: str, name: str) -> dict[str, dict[str, Any]]:
        """Return the descriptors of an image's manifests by architecture."""
        rows = self.document(name, self.digest(key))["manifests"]
        return {row["platform"]["architecture"]: row for row in rows}

    @contextmanager
    def layers(self, name: str, manifest: str) -> Iterator[list[tarfile.TarFile]]:
        """Open the layers of a manifest, the base first, for the time of a block."""
        with ExitStack() as stack:
            layers = self.document(name, manifest)["layers"]
            yield [stack.enter_context(tarfile.open(self.blob(name, layer["digest"]))) for layer in layers]
