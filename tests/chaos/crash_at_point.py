"""`trellis` as a process that records each boundary that it reaches, and dies at configured ones.

Run by a ``Forkserver``. In: the files named by ``TRELLIS_TEST_POINTS`` (for reached points) and by
``TRELLIS_TEST_DEATH`` (crash points, in JSON; a point is removed at its crash, so that the successor lives).
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nats.aio.msg import Msg

import trellis_cli.command_line
from chaos.points import Point, When, of_reply, of_request, of_subject, of_wadm_request
from trellis.bus.consume.ack import Ack
from trellis.bus.publish.publisher import Publisher
from trellis.kube.transport import HttpRequest, HttpTransport, Reply
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.services import SERVICES

PASSED: Final = "TRELLIS_TEST_POINTS"
DEATH: Final = "TRELLIS_TEST_DEATH"

for _one in SERVICES.values():
    _one.load("app")  # once for all children


class Points:
    """Counts messages; ``death``: the file of crash points, of which the first that is reached ends the process."""

    def __init__(self, passed: Path, death: Path) -> None:
        self._passed = passed.open("a", encoding="utf-8", buffering=1)
        self._death = death
        self._counts: Counter[str] = Counter()
        self._deadly = read(death)

    def begin(self, what: str) -> int:
        """Reach a boundary from this side; return its number of times, 0 for none."""
        if not what:
            return 0
        self._counts[what] += 1
        self._come(Point(what, self._counts[what], When.BEFORE))
        return self._counts[what]

    def end(self, what: str, nth: int) -> None:
        """Reach the other side: the request is answered, and the process does not know yet."""
        if nth:
            self._come(Point(what, nth, When.AFTER))

    def _come(self, point: Point) -> None:
        self._passed.write(json.dumps([point.what, point.nth, point.when]) + "\n")
        if point in self._deadly:
            write(self._death, [item for item in self._deadly if item != point])
            os.kill(os.getpid(), signal.SIGKILL)


def read(death: Path) -> list[Point]:
    """Return the remaining crash points."""
    return [Point(what, nth, When(when)) for what, nth, when in json.loads(death.read_text())]


def write(death: Path, points: Sequence[Point]) -> None:
    """Write the crash points for processes that start later."""
    death.write_text(json.dumps([[point.what, point.nth, point.when] for point in points]))


def note(points: Points) -> None:
    """Have this process record its boundaries."""
    send, attempt, ack, message_ack, ask = (
        HttpTransport.send, Publisher._attempt, Ack.__call__, Msg.ack, LatticeConnection.ask,
    )  # fmt: skip

    async def noted_send(self: HttpTransport, request: HttpRequest) -> Reply:
        nth = points.begin(what := of_request(request))
        reply = await send(self, request)
        points.end(what, nth)
        return reply

    async def noted_attempt(self: Publisher, stream: str, subject: str, *rest: Any) -> int:
        nth = points.begin(what := of_subject(subject))
        sequence = await attempt(self, stream, subject, *rest)
        points.end(what, nth)
        return sequence

    async def noted_ack(self: Ack) -> None:
        if self.open:
            points.begin(of_reply(self._reply))
        await ack(self)

    async def noted_message_ack(self: Msg) -> None:
        points.begin(of_reply(self.reply))
        await message_ack(self)

    async def noted_ask(self: LatticeConnection, subject: str, *given: Any, **named: Any) -> bytes:
        nth = points.begin(what := of_wadm_request(subject))
        answer = await ask(self, subject, *given, **named)
        points.end(what, nth)
        return answer

    HttpTransport.send, Publisher._attempt = noted_send, noted_attempt  # type: ignore[method-assign]
    Ack.__call__, Msg.ack = noted_ack, noted_message_ack  # type: ignore[method-assign]
    LatticeConnection.ask = noted_ask  # type: ignore[method-assign]


def main() -> None:
    """Be `trellis`, with what is in ``sys.argv``."""
    note(Points(Path(os.environ[PASSED]), Path(os.environ[DEATH])))
    trellis_cli.command_line.main()
