"""Lives of applications as a real wadm stored, published and answered them, and the statuses of their objects
meanwhile.

Recorded by ``tests/e2e/lattice/record_statuses.py``. An object is taken to be equal to what wadm has at every moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from application_manager.domain.conditions import status_of
from application_manager.domain.sides import Base, Model
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import view_application
from support.wadm.application_objects import seen_of, stored
from trellis.crds.application import Application
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.replies import read_published_status, read_status
from trellis.lattice.domain.store import StoredManifest, StoredModel
from trellis.lattice.wadm.client import Wadm
from trellis.lattice.wadm.statuses import Statuses

Row = dict[str, Any]
RECORDED = Path(__file__).parents[2] / "data/lattice/wadm-statuses.jsonl"
VIEW = view_application(stored())
DIGEST = VIEW.object.digest

VERDICTS = {
    "Deployed": ("True", "False", "False"),
    "Undeployed": ("True", "False", "False"),
    "Reconciling": ("False", "True", "False"),
    "Waiting": ("False", "True", "False"),
    "Failed": ("False", "False", "True"),
}
"""Ready, Reconciling, Stalled, as kstatus reads them."""


def rows(life: str, name: str) -> Iterator[Row]:
    for line in RECORDED.read_text().splitlines():
        row = json.loads(line)
        if row["life"] == life and row.get("name", name) == name:
            yield row


@dataclass
class Notified:
    """One application as stored and wadm's statuses of it; ``notified``: the status of its object after each row."""

    name: str
    models: dict[str, StoredModel] = field(default_factory=dict)
    notified: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        none = cast("LatticeConnection", None)
        self.statuses = Statuses(cast("Wadm", None), none, self, self._changed)
        self.statuses.models_changed(None)

    def names(self) -> Collection[str]:
        return list(self.models)

    def find(self, name: str) -> StoredModel | None:
        return self.models.get(name)

    def _changed(self, names: Iterable[str]) -> None:
        assert list(names) == [self.name]

    def replay(self, life: str) -> list[str]:
        for row in rows(life, self.name):
            self.take(row)
        return self.notified

    def take(self, row: Row) -> None:
        takes: dict[str, Callable[[Any], None]] = {"stored": self._stored, "said": self._status, "step": self._step}
        for what, take in takes.items():
            if what in row:
                take(row[what])

    def status(self) -> dict[str, Any]:
        """Return the status of an object that is equal to what wadm has."""
        model = self.models[self.name]
        version = model.deployed or model.versions[-1][0]
        base = Base(DIGEST, version, deployed=bool(model.deployed), newest=version, bucket="b")
        view = replace(VIEW, object=replace(VIEW.object, base=base))
        snapshot = Snapshot(view.object, Model(((version, DIGEST),), model.deployed, "b"), now=1_793_491_200.0)
        status = status_of(seen_of(view, snapshot, model=model, wadm_status=self.statuses.find(self.name)))
        Application.model_validate(stored() | {"status": status})
        return status

    def _stored(self, found: Row | None) -> None:
        if found is None:
            self.models.pop(self.name)
        else:
            specs: dict[str, str] = found["versions"]
            versions = tuple((version, StoredManifest.of({"spec": digest})) for version, digest in specs.items())
            self.models[self.name] = StoredModel(self.name, versions, found["deployed"], 1)
        self.statuses.models_changed([self.name])
        self._notify("gone" if found is None else f"stored, deployed {found['deployed'] or 'none'}")

    def _status(self, found: Row) -> None:
        self.statuses._on_status(f"wadm.status.red.{self.name}", orjson.dumps(found))
        self._notify(f"said {found['status']['type']}")

    def _step(self, what: str) -> None:
        self.notified.append(f"* {what}")

    def _notify(self, what: str) -> None:
        if self.name not in self.models:
            self.notified.append(f"{what}: no object")
            return
        status = self.status()
        verdicts = {condition["type"]: condition["status"] for condition in status["conditions"]}
        phase = status["phase"]
        assert tuple(verdicts[kind] for kind in ("Ready", "Reconciling", "Stalled")) == VERDICTS[phase]
        self.notified.append(f"{what}: {phase}")


LIFETIMES: dict[tuple[str, str], list[str]] = {
    ("whole_life", "web"): [
        "* deployed where there is no host",
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "* a host comes",
        "said failed: Failed",
        "said reconciling: Reconciling",
        "said deployed: Deployed",
        "* another version",
        "stored, deployed v1: Deployed",
        "stored, deployed v2: Reconciling",
        "said reconciling: Reconciling",
        "* words alone",
        "stored, deployed v2: Reconciling",
        "stored, deployed v3: Reconciling",
        "* undeployed",
        "stored, deployed none: Undeployed",
        "said undeployed: Undeployed",
        "* deployed again",
        "stored, deployed v3: Reconciling",
        "said reconciling: Reconciling",
        "* deleted while it runs, put and deployed anew",
        "gone: no object",
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "said undeployed: Waiting",  # of the former one, late
        "said reconciling: Reconciling",
    ],
    ("every_scaler", "full"): [
        "* deployed",
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "said reconciling: Reconciling",
        "said reconciling: Reconciling",
        "said failed: Failed",
        "* deleted",
        "gone: no object",
        "said undeployed: no object",
    ],
    ("failures", "picky"): [
        "* no host fits",
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "said failed: Failed",
        "* it cannot be read",
        "* a host that fits",
        "said reconciling: Reconciling",
        "said deployed: Deployed",
    ],
    ("failures", "broken"): [
        "* no host fits",
        "* it cannot be read",
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "said reconciling: Reconciling",
        "said failed: Failed",
        "* a host that fits",
        "said reconciling: Reconciling",
        "said failed: Failed",
    ],
    ("restart", "web"): [
        "stored, deployed none: Undeployed",
        "stored, deployed v1: Reconciling",
        "said reconciling: Reconciling",
        "* wadm was killed as soon as it had answered",
        "* wadm starts",
        "said deployed: Deployed",
    ],
}


@pytest.mark.parametrize(("life", "name"), LIFETIMES, ids=lambda part: part)
def test_an_object_states_the_identity_of_its_application(life: str, name: str) -> None:
    assert Notified(name).replay(life) == LIFETIMES[life, name]


def test_every_scaler_is_reported_in_wadms_own_words() -> None:
    kinds = set()
    for life, name in LIFETIMES:
        notified = Notified(name)
        for row in rows(life, name):
            notified.take(row)
            if "said" not in row or name not in notified.models or row["said"]["status"]["type"] == "undeployed":
                continue
            status = notified.status()
            own = [
                {key: scaler[key] for key in ("kind", "name")}
                | {"status": scaler["status"]["type"]}
                | {key: value for key, value in scaler["status"].items() if key == "message"}
                for scaler in row["said"]["scalers"]
            ]
            assert status["scalers"] == own
            assert status.get("message", "") == row["said"]["status"].get("message", "")
            kinds |= {item["kind"] for item in own}
    assert kinds >= {"SpreadScaler", "DaemonScaler", "LinkScaler"}


def test_a_message_that_is_received_twice_changes_nothing() -> None:
    for life, name in LIFETIMES:
        notified = Notified(name)
        for row in rows(life, name):
            notified.take(row)
            if name in notified.models and "said" in row:
                before = notified.status()
                notified.take(row)
                assert notified.status() == before


def test_answers_are_the_last_published_statuses() -> None:
    for life, name in LIFETIMES:
        published: Row = {"status": {"type": "undeployed"}}
        for row in rows(life, name):
            published = row.get("said", published)
            if "answer" in row:
                assert read_status(orjson.dumps(row["answer"])) == read_published_status(orjson.dumps(published))
