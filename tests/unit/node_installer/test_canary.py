"""The built-in canary's module, as far as it can be read without a Wasm runtime; real nodes run it."""

from __future__ import annotations

import subprocess
import sys

from node_installer.domain.canary import LINE, module


def sections(content: bytes) -> dict[int, bytes]:
    """Return a module's sections by number; each is shorter than 128 bytes, so its length is one byte."""
    found, rest = {}, content[8:]
    while rest:
        number, length = rest[0], rest[1]
        assert length < 0x80
        found[number], rest = rest[2 : 2 + length], rest[2 + length :]
        assert len(found[number]) == length
    return found


def test_the_module_is_a_wasi_command_that_prints_one_line() -> None:
    content = module()
    assert content[:8] == b"\0asm\1\0\0\0"
    found = sections(content)
    assert list(found) == sorted(found), "sections come in order"
    assert b"wasi_snapshot_preview1" in found[2]
    assert b"_start" in found[7]
    assert b"memory" in found[7]
    assert found[11].endswith(len(LINE).to_bytes(4, "little") + bytes(8) + LINE)


def test_the_image_gets_it_from_a_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "node_installer.domain.canary"], capture_output=True, check=True)
    assert ended.stdout == module()
