"""Production timings of the Kubernetes client, each by its name: a change of one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from trellis.kube.breaker import Breaker, Scope
from trellis.kube.claim import Claim
from trellis.kube.discovery import Discovery
from trellis.kube.informer import Informer
from trellis.kube.leader import Leader
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import NODES
from trellis.kube.timings import (
    BreakerTimings,
    DiscoveryTimings,
    EventTimings,
    HandoverTimings,
    KubeTimings,
    LeaderTimings,
    RefusalTimings,
)
from trellis.kube.watch_timings import WatchTimings
from trellis_dev.fakes.fake import FakeKube

LEADER = {
    "duration": 10,
    "renew_deadline": 6.0,
    "renew": 3.0,
    "retry": 1.0,
    "call_timeout": 3.0,
    "handover": 0,
    "longest": 60.0,
    "restart_first": 1.0,
    "restart_most": 30.0,
}


def test_production_timings() -> None:
    assert asdict(KubeTimings()) == {
        "call": 15.0,
        "evict": 3.0,
        "probe": 3.0,
        "retry_after": 1.0,
        "recent": 30.0,
        "share": 5.0,
        "connection": {
            "connect": 5.0,
            "open": 15.0,
            "kept": 15.0,
            "plugin": {"run": 10.0, "death": 1.0, "pause": 5.0},
        },
        "discovery": {"again": 5.0, "keep": 600.0},
        "events": {"repeat": 60.0, "alike": 600.0, "refill": 300.0, "pause": 0.05},
        "breaker": {"poll": 5.0, "least": 1.0},
        "watch": {
            "relist": 600.0,
            "watch": (240, 300),
            "idle": 90.0,
            "backoff_first": 0.2,
            "backoff_most": 10.0,
            "stalled_after": 60.0,
            "probe": 10.0,
            "absent": 10.0,
            "refused": 60.0,
            "lived": 5.0,
            "early": 1.0,
        },
        "leader": LEADER,
        "claim": {**LEADER, "duration": 30, "renew_deadline": 20.0, "renew": 5.0, "handover": 10},
        "handover": {"settle": 300.0, "record": 20.0, "again": 0.3},
    }
    assert asdict(RefusalTimings()) == {"retry": 15.0, "spread": 0.25}


def test_each_part_uses_the_timings_of_its_connection_unless_it_is_given_others() -> None:
    lease = LeaderTimings(duration=20)
    timings = KubeTimings(
        discovery=DiscoveryTimings(again=7.0),
        events=EventTimings(repeat=7.0),
        breaker=BreakerTimings(poll=7.0),
        watch=WatchTimings(idle=7.0),
        leader=lease,
        claim=lease,
        handover=HandoverTimings(settle=7.0),
    )
    kube = FakeKube(timings=timings)
    recorder = EventRecorder(kube, component="test")
    claim = Claim(kube, "nodes", "a")
    assert Discovery(kube)._timings is timings.discovery
    assert recorder._timings is timings.events
    assert Breaker(kube, recorder, Scope("test", "a", {}, {}), lambda: None)._timings is timings.breaker
    assert Informer(kube, NODES, str, print)._timings is timings.watch
    assert Leader(kube, lease="a", namespace="a", identity="a")._timings is lease
    assert (claim._timings, claim._leader._timings) == (timings.handover, lease)
    assert Informer(kube, NODES, str, print, timings=WatchTimings(idle=8.0))._timings.idle == 8.0
