"""The file kwok is started with."""

from __future__ import annotations

from pathlib import Path

import yaml

from trellis_dev.localcluster.stages import _FILES, merge


def test_the_callers_stages_come_after_kwoks_in_one_file(tmp_path: Path) -> None:
    for file in _FILES:
        (tmp_path / Path(file).name).write_text(f"kind: Stage\nmetadata: {{name: {Path(file).stem}}}\n")
    documents = list(yaml.safe_load_all(merge(tmp_path, ["kind: Stage\nmetadata: {name: mine}\n"])))
    assert [document["kind"] for document in documents] == ["KwokConfiguration", *["Stage"] * 6]
    assert documents[-1]["metadata"]["name"] == "mine"
