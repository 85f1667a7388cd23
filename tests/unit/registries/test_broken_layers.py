"""Layers that no tool builds: headers about headers, which Python's reader follows by calling itself."""

from __future__ import annotations

import io
import tarfile

import pytest

from trellis.registries.domain.layers import module_in


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_a_layer_of_headers_alone_cannot_be_unpacked(form: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        tar.addfile(tarfile.TarInfo("x" * 200))
    with pytest.raises(ValueError, match="RecursionError"):
        module_in([buffer.getvalue()[:1024] * 2000])
