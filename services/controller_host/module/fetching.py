"""What is being prepared for controllers while others have their turns: modules on their way, references being read.

In: what a controller's spec asks for, each time that it has a turn. Out: what was prepared, or why it cannot be, at the
turn after that is known. Called by ``hosting``. Invariants: no turn waits for a source; who asks is woken when there is
an answer, which is kept until the next turn; an answer is given only to the very question; what nobody asks for any
more ends.
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
    """What is to be prepared: of which spec, as whom; ``again``: the module's bytes are needed in any case."""

    view: ControllerView
    user: str
    anew: bool
    wanted: Wanted = field(compare=False)
    """What the spec says."""


@dataclass(frozen=True, slots=True)
class _Answer:
    question: Question
    task: asyncio.Task[Found]


@dataclass(eq=False)
class Fetching:
    """All that is being prepared. ``wake``: gives a controller a turn; ``end``: seconds for all to end in."""

    preparing: Preparing
    wake: Callable[[str], None]
    end: float
    _answers: dict[str, _Answer] = field(default_factory=dict)
    _closed: bool = False

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, key: str, question: Question) -> Found | None:
        """Return what was prepared for a controller, None as long as that takes: it is woken then.

        Raises:
            NotAccepted: it cannot be run as things are.
            KubeError: the API server did not answer.
        """
        answer = self._answers.get(key)
        if answer is not None and answer.question != question:
            self.drop(key)
            answer = None
        if answer is None:
            if self._closed:
                return None
            known = None if question.anew else self.preparing.at_once(question.view, question.wanted, question.user)
            if known is None:
                self._begin(key, question)
            return known
        if not answer.task.done():
            return None
        del self._answers[key]
        return None if answer.task.cancelled() else answer.task.result()

    def drop(self, key: str) -> None:
        """End what is being prepared for a controller, if anything is."""
        if (answer := self._answers.pop(key, None)) is not None:
            answer.task.cancel()

    def close(self) -> None:
        """End everything, and begin nothing more."""
        self._closed = True
        for key in list(self._answers):
            self.drop(key)

    async def run(self) -> None:
        """Be there until cancelled: with the term of leadership everything ends."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tasks = [answer.task for answer in self._answers.values()]
            self.close()
            if tasks:
                await asyncio.wait(tasks, timeout=self.end)

    def _begin(self, key: str, question: Question) -> None:
        work = self.preparing.prepare(question.view, question.wanted, question.user, anew=question.anew)
        task = asyncio.create_task(work, name=f"prepare {key}")
        self._answers[key] = _Answer(question, task)

        def ended(task: asyncio.Task[Found]) -> None:
            if not task.cancelled():
                task.exception()  # is raised in the controller's turn, if it still asks
                self.wake(key)

        task.add_done_callback(ended)
