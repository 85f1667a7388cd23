"""A file below a directory is read, and none outside of it, whatever links there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller_host.module import files
from controller_host.module.files import read_below
from support.suite.naming import lacking
from trellis.registries.domain.errors import SourceError, SourceReason


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"secret")
    below = tmp_path / "root"
    (below / "a/b").mkdir(parents=True)
    (below / "a/b/x").write_bytes(b"x")
    return below


@pytest.mark.parametrize("path", ["a/b/x", "a//b/./x", "a/../a/b/x", "a/b/../b/x"])
def test_a_path_that_stays_below_is_read(root: Path, path: str) -> None:
    assert read_below(root, path) == b"x"


def test_links_that_stay_below_are_followed_as_volumes_have_them(root: Path) -> None:
    (root / "..data").symlink_to("a/b")
    (root / "x").symlink_to("..data/x")
    (root / "a/up").symlink_to("../a/b/x")
    assert read_below(root, "x") == b"x"
    assert read_below(root, "..data/x") == b"x"
    assert read_below(root, "a/up") == b"x"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "a/../../secret", "../../../../etc/passwd"])
def test_links_and_paths_that_lead_out_are_refused(root: Path, target: str) -> None:
    (root / "link").symlink_to(target)
    (root / "a/deeper").symlink_to(f"../{target}" if not target.startswith("/") else target)
    for path in ("link", "a/deeper", target):
        with pytest.raises(SourceError) as caught:
            read_below(root, path)
        assert caught.value.reason is SourceReason.NOT_ALLOWED, path


def test_a_directory_that_is_a_link_out_is_not_entered(root: Path) -> None:
    (root / "out").symlink_to(root.parent)
    with pytest.raises(SourceError) as caught:
        read_below(root, "out/secret")
    assert caught.value.reason is SourceReason.NOT_ALLOWED


def test_links_in_a_circle_come_to_an_end(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(SourceError, match=r"\b16\b"):
        read_below(root, "one")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a", SourceReason.NOT_FOUND),
        ("a/b/..", SourceReason.NOT_FOUND),
        ("gone", SourceReason.NOT_FOUND),
        ("a/b/x/y", SourceReason.UNAVAILABLE),
    ],
)
def test_a_path_that_is_not_a_file_is_reported(root: Path, path: str, reason: SourceReason) -> None:
    with pytest.raises(SourceError) as refused:
        read_below(root, path)
    assert (refused.value.reason, lacking(refused.value, path)) == (reason, [])


def test_a_file_that_is_too_large_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 3)
    (root / "fits").write_bytes(b"123")
    (root / "large").write_bytes(b"1234")
    assert read_below(root, "fits") == b"123"
    with pytest.raises(SourceError) as caught:
        read_below(root, "large")
    assert caught.value.reason is SourceReason.TOO_LARGE
