"""Production timings of the bus, each by its name: a change of one is seen here."""

from __future__ import annotations

import inspect
from dataclasses import asdict

from trellis.bus.accounts.claim import Claim
from trellis.bus.accounts.reloader import main
from trellis.bus.consume.queue import KeyedQueue
from trellis.bus.timings import BusTimings, DialTimings, ReplayTimings

CLIENT = {"ask_again": 1.0, "goodbye": 2.0}
READ = {"fetch": 1.0, "again": 1.0, "patience": 10.0, "inactive": 60.0, "goodbye": 1.0}


def test_production_timings() -> None:
    assert asdict(BusTimings()) == {
        "check": 5.0,
        "again": 1.0,
        "ack_wait": 60.0,
        "publish_budget": 10.0,
        "publish_attempt": 2.5,
        "claim": 1800.0,
        "stalled_after": 60.0,
        "other_reader": 30.0,
        "reconnect": 10.0,
        "subscribe_again": 2,
        "sign_off": 1.0,
        "refused": 15.0,
        "unstored": 60.0,
        "connection": {
            "connect": 3,
            "attempt_first": 0.5,
            "attempt_most": 10.0,
            "ping": 10,
            "stop": 2.0,
            "silence": 60.0,
            "report": 60.0,
            "client": CLIENT,
        },
        "fetch": {"too_soon": 0.25, "settles": 0.2, "last": 1, "more": 1.0},
        "history": {"again": 0.5, "fetch": 2.0, "inactive": 30.0},
    }
    assert BusTimings().keep_alive == 20.0


def test_production_timings_of_commands() -> None:
    assert asdict(DialTimings()) == {"connect": 3.0, "again": 1, "answer": 3.0, "goodbye": 2.0, "client": CLIENT}
    assert asdict(ReplayTimings()) == {"budget": 10.0, "attempt": 2.5, "again": 1.0, "read": READ}


def test_production_waits_that_are_given_alone() -> None:
    assert Claim("east", "uid", "provisioner").lifetime == 1800.0
    assert inspect.signature(KeyedQueue).parameters["cancel"].default == 0.5
    assert inspect.signature(main).parameters["pause"].default == 5.0
