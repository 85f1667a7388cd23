"""The stream of dead letters: list, replay, remove.

In: the address and a selection of letters. Out: letters; originals published again. Called by the command line.
Invariant: a letter is removed only after the server confirmed that its original is stored. After a crash in between, a
repeated replay is harmless, and no other letter is removed instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.js.errors import BadRequestError, NotFoundError

from trellis.bus.connection.connection import describe
from trellis.bus.connection.dial import dial, hang_up
from trellis.bus.connection.user_client import PermissionDenied
from trellis.bus.dead_letters.read import DeadLetter, Wanted, read_dead_letter, replayed_headers
from trellis.bus.errors import BusError, BusUnavailable
from trellis.bus.streams.stream_reader import EVERYTHING, Start, StreamReader
from trellis.bus.streams.streams import DUPLICATE_WINDOW, epoch_of
from trellis.bus.timings import ReplayTimings
from trellis.config.nats_credentials import Credentials
from trellis.events.subjects import ROOT_EVENTS, STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, dead_filter

# Permanent errors: no retry.
_REFUSALS: Final = (BadRequestError, PermissionDenied, nats.errors.BadHeaderError, nats.errors.MaxPayloadError)


class ReplayRefused(BusError):  # noqa: N818 (named after the condition)
    """A letter can never be replayed; it stays in the stream."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Position of the replayed original; ``again`` if an earlier, unfinished replay had stored it."""

    stream: str
    sequence: int
    again: bool


class DeadLetters:
    """The stored dead letters, opened by :func:`dead_letters`. ``looked_at`` counts the letters that were read."""

    def __init__(self, client: Client, timings: ReplayTimings = ReplayTimings()) -> None:
        self.looked_at = 0
        self._client = client
        self._timings = timings

    async def find(self, wanted: Wanted, *, bodies: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the current letters, oldest first; without bodies unless requested.

        Raises:
            StreamError: the stream of dead letters does not exist, or was re-created in the meantime.
            BusUnavailable: NATS or JetStream did not answer.
        """
        start = Start(since=wanted.since) if wanted.since else EVERYTHING
        reader = self._reader(dead_filter(wanted.cluster), start, headers_only=not bodies)
        async with contextlib.aclosing(reader.past()) as messages:
            async for message in messages:
                self.looked_at += 1
                if wanted.wants(dead_letter := read_dead_letter(message, _epoch(reader))):
                    yield dead_letter

    async def get(self, sequence: int) -> DeadLetter | None:
        """Return the letter of this sequence with its body, or None if it does not exist; raises as ``find``."""
        reader = self._reader(dead_filter(), Start(sequence=sequence))
        reader.batch = 1
        async with contextlib.aclosing(reader.past()) as messages:
            async for message in messages:
                return read_dead_letter(message, _epoch(reader)) if message.sequence == sequence else None
        return None

    async def replay(self, dead_letter: DeadLetter) -> Replayed:
        """Republish the original of a dead letter, wait until it is stored, and then remove the dead letter.

        Args:
            dead_letter: dead letter with its body.

        Raises:
            ReplayRefused: the letter cannot be replayed, or the server rejects the message.
            BusUnavailable: it was not stored within 10 s, or the letter could not be removed; repeat the replay.
        """
        if dead_letter.obstacle:
            raise ReplayRefused(f"letter {dead_letter.sequence} cannot be replayed: {dead_letter.obstacle}")
        stored = await self._publish(dead_letter)
        await self._remove(dead_letter)
        return stored

    def _reader(self, subject: str, start: Start, *, headers_only: bool = False) -> StreamReader:
        timings = self._timings.read
        return StreamReader(self._client, STREAM_DEAD, subject, start, headers_only=headers_only, timings=timings)

    async def _publish(self, dead_letter: DeadLetter) -> Replayed:
        stream = STREAM_EVENTS if dead_letter.subject.startswith(f"{ROOT_EVENTS}.") else STREAM_LATTICE
        met: Exception | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.budget):
                while True:
                    try:
                        ack = await self._client.jetstream().publish(
                            dead_letter.subject,
                            dead_letter.body,
                            timeout=self._timings.attempt,
                            stream=stream,  # in any other stream it would have no readers
                            headers=replayed_headers(dead_letter),
                        )
                    except _REFUSALS as error:
                        reason = f"{dead_letter.subject} is refused: {describe(error)}"
                        raise ReplayRefused(f"letter {dead_letter.sequence} cannot be replayed: {reason}") from error
                    except (nats.errors.Error, OSError) as error:
                        met = error
                        await asyncio.sleep(self._timings.again)
                    else:
                        return Replayed(ack.stream, ack.seq, again=bool(ack.duplicate))
        reason = describe(met) if met is not None else "no answer in time"
        raise BusUnavailable(
            f"letter {dead_letter.sequence} was not replayed, {dead_letter.subject} could not be stored within "
            f"{self._timings.budget:g} s: {reason}"
        )

    async def _remove(self, dead_letter: DeadLetter) -> None:
        jetstream = self._client.jetstream()
        try:
            info = await jetstream.stream_info(STREAM_DEAD)
            if epoch_of(info).token != dead_letter.epoch:
                return  # the stream was re-created; another letter may have this sequence
            await jetstream.delete_msg(STREAM_DEAD, dead_letter.sequence)
        except (nats.errors.Error, OSError) as error:
            if isinstance(error, NotFoundError) or await self._is_deleted(dead_letter):
                return  # removed by another user, or expired
            raise BusUnavailable(
                f"letter {dead_letter.sequence} was replayed, but could not be removed: {describe(error)}; a replay "
                f"within {DUPLICATE_WINDOW:g} s is not stored a second time"
            ) from error

    async def _is_deleted(self, dead_letter: DeadLetter) -> bool:
        try:
            return await self.get(dead_letter.sequence) is None
        except BusError:
            return False


@contextlib.asynccontextmanager
async def dead_letters(
    url: str, *, credentials: Credentials | None = None, timings: ReplayTimings = ReplayTimings()
) -> AsyncIterator[DeadLetters]:
    """Connect for the duration of the block; raises BusUnavailable if no NATS is reachable at the address."""
    client = await dial(url, "trellis-dead", credentials)
    try:
        yield DeadLetters(client, timings)
    finally:
        await hang_up(client)


def _epoch(reader: StreamReader) -> str:
    return reader.epoch.token if reader.epoch is not None else ""
