"""Programs of a release: their input stays secret, and their failures are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from trellis_tools.release import __main__ as command
from trellis_tools.release.__main__ import main
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.plan import Release
from trellis_tools.release.programs import run
from trellis_tools.release.publish import Key, Publisher


def test_a_program_gets_its_input_and_gives_its_output() -> None:
    assert run(["cat"], stdin=b"text") == "text"


def test_a_failure_has_the_end_of_the_output_and_not_the_input() -> None:
    with pytest.raises(ReleaseError, match="line 30") as failed:
        run(["sh", "-c", "seq -f 'line %g' 1 30 >&2; exit 3"], stdin=b"the password")
    assert "line 1\n" not in str(failed.value)
    assert "the password" not in str(failed.value)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ReleaseError, match="no-such-program"):
        run(["no-such-program"])


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" with blanks \r\n")
    assert Key(tmp_path / "key", file).read() == b" with blanks "
    assert Key(tmp_path / "key").read() == b""


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="nowhere"):
        Key(tmp_path / "key", tmp_path / "nowhere").read()


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ([], "VERSION"),
        (["1.2.3", "--registry", "registry.example"], "KEY"),
        (["1.2.3", "--key", "cosign.key"], "REGISTRY"),
    ],
)
def test_a_missing_variable_of_make_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], missing: str
) -> None:
    assert main([*arguments, "--output", str(tmp_path)]) == 1
    assert f"{missing} is missing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_there", [False, True], ids=["no file", "another password"])
def test_a_key_that_cannot_sign_ends_the_command_before_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    key, out, cosign = tmp_path / "cosign.key", tmp_path / "out", tmp_path / "cosign"
    cosign.write_text("#!/bin/sh\necho 'decrypt: encrypted: decryption failed' >&2\nexit 1\n", encoding="ascii")
    cosign.chmod(0o755)
    monkeypatch.setattr(Publisher, "_tool", lambda _, name: str(tmp_path / name))
    monkeypatch.setattr(command, "_release", lambda version, registry: Release.parse(version, registry, "0" * 40, "0"))
    if is_there:
        key.touch()
    former = out / "1.2.3" / "release.json"
    former.parent.mkdir(parents=True)
    former.touch()
    arguments = ["1.2.3", "--registry", "registry.example", "--key", str(key), "--output", str(out)]
    assert main(arguments) == 1
    assert ("decryption failed" if is_there else f"KEY={key}") in capsys.readouterr().err
    assert former.exists(), "the files of a former build are kept"


def test_a_wrong_version_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one", "--output", str(tmp_path)]) == 1
    assert "VERSION=one" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
