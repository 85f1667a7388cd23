"""The judge of a run's history: it lets pass what services do, and finds what they must never do."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.judge import Case, violations, work

CASE = Case(system="s", installers="i", deleted={"spin-1"})
Record = dict[str, Any]


def record(verb: str, kind: str, name: str, *, namespace: str = "", by: str = "first-1", code: int = 200) -> Record:
    """Return a write as the API server logs it; ``by``: a replica of the provisioner, or a program."""
    agent = f"{by}/v1" if by in {"kubectl", "kwok"} else f"trellis-provisioner/0.1 ({by})"
    return {
        "verb": verb,
        "userAgent": agent,
        "objectRef": {"resource": kind, "namespace": namespace, "name": name},
        "responseStatus": {"code": code},
        "stageTimestamp": "then",
    }


def leads(replica: str) -> Record:
    return record("patch", "leases", "trellis-provisioner", namespace="s", by=replica)


def job(verb: str = "create", *, wanted: str = "a", by: str = "first-1", code: int = 201) -> Record:
    return record(verb, "jobs", f"n1-{wanted}-provision-kwasm", namespace="i", by=by, code=code)


GOOD = {
    "a Job is made and deleted": [leads("first-1"), job(), job("delete", code=200)],
    "a Job that somebody deleted is made again": [leads("first-1"), job(), job("delete", by="kubectl"), job()],
    "a Job is made again for what is wanted again": [
        leads("first-1"),
        *(item for wanted in "aba" for item in (job(wanted=wanted), job("delete", wanted=wanted, code=200))),
    ],
    "a Job is made again for who opted out and in again": [
        leads("first-1"),
        job(),
        job("delete", code=200),
        record("patch", "nodes", "n1", by="kubectl"),
        job(),
    ],
    "a Job that was refused is made later": [leads("first-1"), job(code=500), job()],
    "what is made of a Shim goes with it": [leads("first-1"), record("delete", "runtimeclasses", "spin-1")],
    "a successor writes on": [
        leads("first-1"),
        record("patch", "nodes", "n"),
        leads("second-1"),
        record("patch", "nodes", "n", by="second-1"),
    ],
}
BAD = {
    "a Job is made twice": ([leads("first-1"), job(), job()], "made 2 times"),
    "a Job is made again after the service deleted it": (
        [leads("first-1"), job(), job("delete", code=200), job()],
        "made 2 times",
    ),
    "a Job is made again after a service and the cluster wrote to its node": (
        [
            leads("first-1"),
            job(),
            job("delete", code=200),
            record("patch", "nodes", "n1"),
            record("patch", "nodes", "n1", by="kwok"),
            job(),
        ],
        "made 2 times",
    ),
    "what nobody asked to go is deleted": (
        [leads("first-1"), record("delete", "runtimeclasses", "spin-2")],
        "runtimeclasses /spin-2",
    ),
    "a former leader writes over its successor": (
        [
            leads("first-1"),
            leads("second-1"),
            record("patch", "nodes", "n", by="second-1"),
            record("patch", "nodes", "n", by="first-1"),
        ],
        "after patch nodes/n",
    ),
    "somebody writes who never led": ([record("patch", "nodes", "n")], "never led"),
}


@pytest.mark.parametrize("records", GOOD.values(), ids=GOOD)
def test_it_lets_pass(records: list[Record]) -> None:
    assert violations(records, CASE) == []


@pytest.mark.parametrize(("records", "problem"), BAD.values(), ids=BAD)
def test_it_finds(records: list[Record], problem: str) -> None:
    [found] = violations(records, CASE)
    assert problem in found


def test_leases_access_reviews_and_writes_of_others_are_no_work() -> None:
    records = [
        leads("first-1"),
        record("patch", "nodes", "n"),
        record("patch", "nodes", "n", by="kubectl"),
        record("create", "subjectaccessreviews", ""),
        job(code=409),
    ]
    assert work(records) == {"nodes": 1}
