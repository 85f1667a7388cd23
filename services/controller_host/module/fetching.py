"""Background preparation of controllers: modules that are fetched, references that are read.

In: the spec of a controller, in each of its turns. Out: the prepared controller or the error, in a later turn. Called
by ``hosting``. Invariants: no turn waits for a source; a controller is woken when its result is available, and the
result is kept until its next turn; a result is used only for an equal question; work that is no longer requested is
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controller_host.domain.views import ControllerView, Wanted
from controller_host.module.preparing import Preparing
from controller_host.scheduler.guests import Prepared
from controller_host.state.progress import KnownModule

Found = tuple[Prepared, KnownModule]


@dataclass(frozen=True, slots=True)
class Question:
    """Input of a preparation: the spec and the user; ``refetch``: fetch the module's bytes even if it is known."""

    view: ControllerView
    user: str
    refetch: bool
    wanted: Wanted = field(compare=False)
    """Parsed spec."""
    repeated: bool = field(compare=False)
    """True if the source is checked for changes after a preparation with the same spec."""


@dataclass(frozen=True, slots=True)
class _Answer:
    question: Question
    task: asyncio.Task[Found]


@dataclass(eq=False)
class Preparations:
    """All preparations. ``wake``: adds a controller to the queue; ``end``: timeout of the shutdown in seconds."""

    preparing: Preparing
    wake: Callable[[str], None]
    end: float
    _answers: dict[str, _Answer] = field(default_factory=dict)
    _closed: bool = False

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, key: str, question: Question) -> Found | None:
        """Return the prepared controller, None while it is in progress: the controller is woken when it ends.

        Raises:
            NotAccepted: the controller cannot run.
            KubeError: the API server did not answer.
        """
        answer = self._answers.get(key)
        if answer is not None and answer.question != question:
            self.drop(key)
            answer = None
        if answer is None:
            if self._closed:
                return None
            known = None if question.refetch else self._at_once(question)
            if known is None:
                self._begin(key, question)
            return known
        if not answer.task.done():
            return None
        del self._answers[key]
        return None if answer.task.cancelled() else answer.task.result()

    def _at_once(self, question: Question) -> Found | None:
        return self.preparing.at_once(question.view, question.wanted, question.user, repeated=question.repeated)

    def drop(self, key: str) -> None:
        """Cancel the preparation of a controller, if there is one."""
        if (answer := self._answers.pop(key, None)) is not None:
            answer.task.cancel()

    def close(self) -> None:
        """Cancel all preparations, and reject new ones."""
        self._closed = True
        for key in list(self._answers):
            self.drop(key)

    async def run(self) -> None:
        """Wait until cancelled at the end of the leadership term, then cancel all preparations."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tasks = [answer.task for answer in self._answers.values()]
            self.close()
            if tasks:
                await asyncio.wait(tasks, timeout=self.end)

    def _begin(self, key: str, question: Question) -> None:
        work = self.preparing.prepare(question.view, question.wanted, question.user, refetch=question.refetch)
        task = asyncio.create_task(work, name=f"prepare {key}")
        self._answers[key] = _Answer(question, task)

        def ended(task: asyncio.Task[Found]) -> None:
            if not task.cancelled():
                task.exception()  # raised in the next turn of the controller
                self.wake(key)

        task.add_done_callback(ended)
