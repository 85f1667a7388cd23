"""The start section is taken out before the engine sees it: what the engine would refuse of it is refused before."""

from __future__ import annotations

import pytest
import wasmtime

from controller_host.guest.binary import MAGIC, read
from controller_host.guest.reading import u32
from controller_host.guest.refusals import ModuleRefused, RefusalReason
from controller_host.guest.rewriting import START_EXPORT, rewrite
from support.guests import wat

WHOLE = wat.guest(more="(func $f) (start $f)")
START = next(section for section in read(WHOLE).sections if section.id == 8)


def with_start(content: bytes, *, at: int = START.start) -> bytes:
    """The module with another start section in place of its own, or elsewhere."""
    without = WHOLE[: START.start] + WHOLE[START.end :]
    return without[:at] + b"\x08" + u32(len(content)) + content + without[at:]


def test_a_good_one_becomes_an_export() -> None:
    assert START_EXPORT in rewrite(with_start(u32(2))).exports


@pytest.mark.parametrize(
    "module",
    [
        with_start(u32(0)),
        with_start(u32(99)),
        with_start(u32(2) + b"\0"),
        with_start(u32(2), at=len(MAGIC)),
        with_start(u32(2), at=len(WHOLE) - (START.end - START.start)),
        WHOLE[: START.end] + WHOLE[START.start :],
    ],
    ids=["takes something", "is none", "and more", "first of all", "last of all", "twice"],
)
def test_one_that_the_engine_would_refuse_is_refused(module: bytes) -> None:
    with pytest.raises(wasmtime.WasmtimeError):
        wasmtime.Module.validate(wasmtime.Engine(), module)
    with pytest.raises(ModuleRefused, match="start") as refused:
        rewrite(module)
    assert refused.value.reason is RefusalReason.NOT_WASM
