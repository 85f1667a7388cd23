"""Sources that are refused while checksums are required: one rule for the planner and the installer."""

from __future__ import annotations

import pytest

from node_installer.domain.errors import InstallError
from node_installer.fetch.stage import source_of
from trellis.installer_api.result import FailureReason
from trellis.installer_api.spec import Source, WantedShim
from trellis.provisioning.shims import Refusal, wanted_shim_for
from trellis_dev.testing.builders import a_shim

SUM = "ab" * 32
BY_DIGEST = f"oci://registry.example/team/shim@sha256:{SUM}"

PINNED = {
    "an archive with its checksum": Source("https://example.com/shim.tgz", None, SUM),
    "an archive with the checksum of the shim in it": Source("https://example.com/shim.tgz", binary_sha256=SUM),
    "an image by digest": Source(BY_DIGEST),
    "an image by tag and digest": Source(f"oci://registry.example:5000/team/shim:1@sha256:{SUM}"),
    "an image by digest without TLS": Source(BY_DIGEST.replace("oci:", "oci+http:")),
    "an image by tag with the checksum of the shim in it": Source("oci://registry.example/shim:1", None, SUM),
    "a path in the installer's image with its checksum": Source("/assets/shim", binary_sha256=SUM),
    "a path in the installer's image for one architecture": Source("/assets/shim", "amd64", SUM),
}
LOOSE = {
    "an archive": Source("https://example.com/shim.tgz"),
    "an image by tag": Source("oci://registry.example/team/shim:1"),
    "an image without tag": Source("oci://registry.example/team/shim"),
    "an image by half a digest": Source(BY_DIGEST[:-1]),
    "an address that ends as a digest does": Source(f"https://example.com/shim@sha256:{SUM}"),
    "a path in the installer's image": Source("/assets/shim"),
    "a path in the installer's image that ends as a digest does": Source(f"/assets/shim@sha256:{SUM}"),
}


def verdicts(source: Source, *, required: bool) -> tuple[bool, bool]:
    """Return whether the planner gives a node this source, and whether the installer accepts it."""
    planned = wanted_shim_for(a_shim(sources=(source,)), "amd64", require_checksum=required)
    assert isinstance(planned, WantedShim) or planned is Refusal.CHECKSUM_MISSING
    wanted = WantedShim("spin", "spin", "1", "shim/spin", (source,))
    try:
        taken = source_of(wanted, "amd64", require_checksum=required) is source
    except InstallError as error:
        taken = error.reason is not FailureReason.CHECKSUM_MISSING
    return isinstance(planned, WantedShim), taken


@pytest.mark.parametrize("source", PINNED.values(), ids=PINNED)
def test_a_pinned_source_is_planned_and_accepted(source: Source) -> None:
    assert verdicts(source, required=True) == (True, True)


@pytest.mark.parametrize("source", LOOSE.values(), ids=LOOSE)
def test_an_unpinned_source_is_neither_planned_nor_accepted_unless_that_is_allowed(source: Source) -> None:
    assert verdicts(source, required=True) == (False, False)
    assert verdicts(source, required=False) == (True, True)
