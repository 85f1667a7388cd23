"""The ABI of docs/controller-abi.md as tables: required exports and allowed imports of a module, types and bounds.

Pure. Called by ``rewriting`` (checks a module), ``imports`` and ``wasi`` (implement the functions), ``instance``.
"""

from __future__ import annotations

from typing import Final

from controller_host.guest.binary import FunctionType

VERSIONS: Final = frozenset({1})
"""Supported versions of the ABI."""

MOST_BYTES: Final = 4 << 20
"""Maximum size of a result, a request and an answer, in bytes."""

RESERVED: Final = "trellis:"
"""Prefix of the exports that the host adds."""

EMPTY: Final = b"{}"
"""Answer for an empty result."""


def signature(text: str) -> FunctionType:
    """Return the type for ``"iI:i"``: i is i32, I is i64; parameters, a colon, results."""
    names = {"i": "i32", "I": "i64"}
    parameters, _, results = text.partition(":")
    return FunctionType(tuple(names[letter] for letter in parameters), tuple(names[letter] for letter in results))


REQUIRED: Final = {"alloc": signature("i:i"), "reconcile": signature("ii:I")}
OPTIONAL: Final = {
    "init": signature("ii:I"),
    "save": signature(":I"),
    "migrate": signature("ii:I"),
    "abi_version": signature(":i"),
    "_initialize": signature(":"),
}

TRELLIS: Final = {
    "call": signature("ii:i"),
    "take": signature("i:"),
    "log": signature("iii:"),
    "now": signature(":I"),
    "monotonic": signature(":I"),
    "random": signature("ii:"),
    "requeue": signature("I:"),
}

# Source: WASI preview 1, "wasi_snapshot_preview1.witx".
WASI: Final = {
    "args_get": signature("ii:i"),
    "args_sizes_get": signature("ii:i"),
    "clock_res_get": signature("ii:i"),
    "clock_time_get": signature("iIi:i"),
    "environ_get": signature("ii:i"),
    "environ_sizes_get": signature("ii:i"),
    "fd_advise": signature("iIIi:i"),
    "fd_allocate": signature("iII:i"),
    "fd_close": signature("i:i"),
    "fd_datasync": signature("i:i"),
    "fd_fdstat_get": signature("ii:i"),
    "fd_fdstat_set_flags": signature("ii:i"),
    "fd_fdstat_set_rights": signature("iII:i"),
    "fd_filestat_get": signature("ii:i"),
    "fd_filestat_set_size": signature("iI:i"),
    "fd_filestat_set_times": signature("iIIi:i"),
    "fd_pread": signature("iiiIi:i"),
    "fd_prestat_dir_name": signature("iii:i"),
    "fd_prestat_get": signature("ii:i"),
    "fd_pwrite": signature("iiiIi:i"),
    "fd_read": signature("iiii:i"),
    "fd_readdir": signature("iiiIi:i"),
    "fd_renumber": signature("ii:i"),
    "fd_seek": signature("iIii:i"),
    "fd_sync": signature("i:i"),
    "fd_tell": signature("ii:i"),
    "fd_write": signature("iiii:i"),
    "path_create_directory": signature("iii:i"),
    "path_filestat_get": signature("iiiii:i"),
    "path_filestat_set_times": signature("iiiiIIi:i"),
    "path_link": signature("iiiiiii:i"),
    "path_open": signature("iiiiiIIii:i"),
    "path_readlink": signature("iiiiii:i"),
    "path_remove_directory": signature("iii:i"),
    "path_rename": signature("iiiiii:i"),
    "path_symlink": signature("iiiii:i"),
    "path_unlink_file": signature("iii:i"),
    "poll_oneoff": signature("iiii:i"),
    "proc_exit": signature("i:"),
    "proc_raise": signature("i:i"),
    "random_get": signature("ii:i"),
    "sched_yield": signature(":i"),
    "sock_accept": signature("iii:i"),
    "sock_recv": signature("iiiiii:i"),
    "sock_send": signature("iiiii:i"),
    "sock_shutdown": signature("ii:i"),
}

IMPORTS: Final = {"trellis": TRELLIS, "wasi_snapshot_preview1": WASI}
