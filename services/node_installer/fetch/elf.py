"""Checks the architecture of a program by its ELF header.

Pure. Called by ``stage``. Source: System V ABI, ELF header: ``e_ident`` and ``e_machine`` (offset 18).
"""

from __future__ import annotations

from typing import Final

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

HEADER_BYTES: Final = 20
_MACHINES: Final = {
    3: "386",
    8: "mips",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "amd64",
    183: "arm64",
    243: "riscv64",
}


def check_architecture(header: bytes, arch: str, name: str) -> None:
    """Reject a program that this node cannot run.

    Raises:
        InstallError: ``WrongArchitecture``.
    """
    if header[:4] != b"\x7fELF" or len(header) < HEADER_BYTES:
        message = f"{name} is not a Linux program (no ELF header): it may be an archive of another kind, or a web page"
        raise InstallError(FailureReason.WRONG_ARCHITECTURE, message)
    order = "little" if header[5] == 1 else "big"
    machine = int.from_bytes(header[18:20], "little" if order == "little" else "big")
    found = _MACHINES.get(machine, f"machine {machine}")
    if found != arch:
        message = f"{name} is for {found}, and this node is {arch}: add a source for {arch}"
        raise InstallError(FailureReason.WRONG_ARCHITECTURE, message)
