"""Builds of the example controllers: the same bytes wherever they are made, and those that are committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.guests import built as guests

pytestmark = pytest.mark.timeout(900)


def test_the_committed_modules_are_what_their_sources_make() -> None:
    guests.needed("c")
    committed = sorted(guests.PREBUILT.glob("*.wasm"))
    assert {path.stem for path in committed} == {"ring", "mirror", "ttl"}
    for path in committed:
        built = guests.example("c", path.stem)
        assert path.read_bytes() == built.read_bytes(), f"copy {built} to {path}"


@pytest.mark.thorough
@pytest.mark.parametrize("language", guests.LANGUAGE_PARAMETERS)
def test_two_builds_in_two_places_make_the_same_bytes(tmp_path: Path, language: str) -> None:
    guests.needed(language)
    elsewhere = tmp_path / "else where" / "sdk"
    shutil.copytree(guests.SDK / language, elsewhere, ignore=shutil.ignore_patterns("target"))
    guests.LANGUAGES[language].build(elsewhere, tmp_path / "out", tmp_path / "log")
    for name in guests.EXAMPLES:
        built = tmp_path / "out" / f"{name}.wasm"
        assert built.read_bytes() == guests.example(language, name).read_bytes(), name
