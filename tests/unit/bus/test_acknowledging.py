"""Acknowledged means done, and one key has one run, in every order of deliveries, failures, lost answers and kills.

The queue of each mutant breaks one rule; every one is caught. Fewer states than before mean that a step was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.cluster.acknowledging_model import AT_ONCE, NOT_DONE, UNFINISHED, Limits, Model, Reached
from support.nodes.exploring import HOPELESS, BrokenPromise, Explored, Promises, explore
from trellis.bus.consume.queue import Acknowledgement, KeyedQueue, _Entry
from trellis.telemetry import TraceContext

PROMISES: Promises[Reached] = Promises(lambda state: state.broken, lambda state: state.done)


def explored(model: Model) -> Explored:
    try:
        return explore(model.played(()), model.steps, PROMISES, most=20_000)
    finally:
        model.loop.close()


class AcknowledgesOnReceipt(KeyedQueue[str]):
    """Each message when it comes."""

    def add(self, key: str, ack: Acknowledgement | None = None, trace: TraceContext | None = None) -> None:
        super().add(key, None, trace)
        if ack is not None:
            _now(ack)


def _now(ack: Acknowledgement) -> None:
    steps: Iterator[object] = ack().__await__()
    for _ in steps:
        raise AssertionError("an acknowledgement of the model does not wait")


class AcknowledgesLaterMessages(KeyedQueue[str]):
    """A queue that acknowledges messages which came during a run with that run."""

    async def _acknowledge(self, key: str, entry: _Entry) -> None:
        if newer := self._entries.get(key):
            entry.acks |= newer.acks
        await super()._acknowledge(key, entry)


class AcknowledgesFailures(KeyedQueue[str]):
    """A message whose run failed: it would fail again."""

    def _failed(self, key: str, entry: _Entry, error: Exception) -> None:
        for ack in entry.acks.values():
            _now(ack)
        entry.acks.clear()
        super()._failed(key, entry, error)


class RunsAtOnce(KeyedQueue[str]):
    """A key that is running already."""

    def add(self, key: str, ack: Acknowledgement | None = None, trace: TraceContext | None = None) -> None:
        super().add(key, ack, trace)
        if key in self._running:
            self._ready.add(key)
            self._pump()


class ForgetsWhatCameMeanwhile(KeyedQueue[str]):
    """A key that is added while it runs: it is running, after all."""

    def add(self, key: str, ack: Acknowledgement | None = None, trace: TraceContext | None = None) -> None:
        if key in self._current and ack is not None:
            self._current[key].acks[ack.token] = ack
        else:
            super().add(key, ack, trace)


class NeverTriesAgain(KeyedQueue[str]):
    """A run that failed."""

    def _failed(self, key: str, entry: _Entry, error: Exception) -> None:
        del key, entry, error


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("limits", "states"),
    [(Limits(lost_acks=0, kills=0), 276), (Limits(again=0, refused=0), 600), (Limits(messages=1), 612)],
    ids=["refused writes and second deliveries", "kills and lost acknowledgements", "all of them, and one message"],
)
def test_in_every_order_acknowledged_messages_are_done_and_everything_ends_done(limits: Limits, states: int) -> None:
    assert explored(Model(limits=limits)).states >= states


@pytest.mark.parametrize(
    ("queue", "promise"),
    [
        (AcknowledgesOnReceipt, NOT_DONE),
        (AcknowledgesLaterMessages, NOT_DONE),
        (AcknowledgesFailures, NOT_DONE),
        (ForgetsWhatCameMeanwhile, NOT_DONE),
        (RunsAtOnce, AT_ONCE),
    ],
)
def test_a_queue_without_one_of_its_rules_is_caught(queue: Callable[..., KeyedQueue[str]], promise: str) -> None:
    with pytest.raises(BrokenPromise, match=promise):
        explored(Model(queue, Limits(lost_acks=0, kills=0)))


def test_a_queue_that_does_not_try_again_is_caught() -> None:
    with pytest.raises(BrokenPromise, match=HOPELESS):
        explored(Model(NeverTriesAgain, Limits(1, again=0, lost_acks=0, kills=0)))


def test_a_write_that_names_nothing_it_read_is_caught() -> None:
    """That of a replica that was killed arrives when its successor has written."""
    with pytest.raises(BrokenPromise, match=UNFINISHED):
        explored(Model(limits=Limits(again=0, refused=0, lost_acks=0), compares=False))
