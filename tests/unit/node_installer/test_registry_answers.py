"""The installer has a reason for every answer of a registry; and no reference leads to another repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node_installer.domain.errors import InstallError
from node_installer.fetch.oci import Registry, parse_reference
from node_installer.fetch.web import Response, Web
from trellis.installer_api.result import FailureReason

SHIM = b"\x7fELF"
DIGEST = f"sha256:{hashlib.sha256(SHIM).hexdigest()}"
LAYER = {"digest": DIGEST, "annotations": {"org.opencontainers.image.title": "shim"}}
LINUX = {"os": "linux", "architecture": "amd64"}


@dataclass(frozen=True)
class Answers(Web):
    document: Any = None

    def get(self, url: str, headers: Mapping[str, str], limit: int = 0) -> Response:
        del url, headers, limit
        return Response(200, {}, json.dumps(self.document).encode())

    def download(self, url: str, target: Path, *, headers: Any = None, limit: int = 0) -> str:
        del url, headers, limit
        target.write_bytes(SHIM)
        return hashlib.sha256(SHIM).hexdigest()


def fetched(document: Any, work: Path) -> Path:
    return Registry(Answers(document=document), parse_reference("oci://r.example/a:1"), None).fetch(
        "amd64", work, None, ()
    )


def test_a_manifest_is_read(tmp_path: Path) -> None:
    assert fetched({"layers": [LAYER]}, tmp_path).read_bytes() == SHIM


@pytest.mark.parametrize(
    "document",
    [[], 5, None, {"layers": "x"}, {"layers": [5]}, {"layers": [LAYER | {"annotations": "x"}]}, {"layers": [{}]},
     {"manifests": "x"}, {"manifests": [5]}, {"manifests": [{"platform": "x"}]}, {"manifests": [{"platform": LINUX}]},
     {"manifests": [{"platform": LINUX, "digest": "latest"}]}, {"manifests": [{"platform": LINUX, "digest": "../x"}]}],
)  # fmt: skip
def test_an_answer_of_another_shape_is_no_download(document: Any, tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"r\.example/a") as refused:
        fetched(document, tmp_path)
    assert refused.value.reason is FailureReason.DOWNLOAD_FAILED


@pytest.mark.parametrize("repository", ["a//b", "a/../b", "a/./b", "a/..", "a___b", "a/", "a..b"])
def test_no_part_of_a_repository_leads_elsewhere(repository: str) -> None:
    with pytest.raises(InstallError) as refused:
        parse_reference(f"oci://r.example/{repository}")
    assert refused.value.reason is FailureReason.INVALID_SPEC


@pytest.mark.parametrize("repository", ["a", "a/b", "a-b/c__d/e.f_g--h"])
def test_a_repository_that_registries_allow_is_parsed(repository: str) -> None:
    assert parse_reference(f"oci://r.example/{repository}").repository == repository
