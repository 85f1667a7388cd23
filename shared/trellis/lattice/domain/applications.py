"""The deployed applications of one lattice, from events and answers of wadm.

Pure: events, answers and times in; deployed applications, and pending queries, out. Called by
``trellis.lattice.follow.comparison``. Invariants: an answer of wadm decides, except over events received after its
query; of two events about an application the later one by the time of wadm counts, in any order of arrival; a failed
query removes nothing, except applications that wadm reported as deleted. Source: wadm 0.21 publishes
``manifest_published`` with the manifest, and ``manifest_unpublished`` with a name only: on undeploy, again on delete,
and even for applications that never existed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.lattice.domain.manifests import Application
from trellis.lattice.domain.models import Model
from trellis.lattice.timings import ComparisonTimings

_REMEMBERED: Final = 5_000


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one application. ``said``: wadm's time of the newest event, as ``said_at`` writes it, "" if
    none was heard.

    ``application``: None while it is not deployed. ``heard``: when that event came, monotonic seconds; ``count``: its
    number. ``gone``: wadm said so, and was not asked since. ``sure``: an answer of wadm agrees.
    """

    application: Application | None = None
    said: str = ""
    heard: float = float("-inf")
    count: int = 0
    gone: bool = False
    sure: bool = True


@dataclass(slots=True)
class Applications:
    """A lattice's applications. ``complete``: wadm has told all of them since the start.

    ``wanted``: versions by name of what is deployed and whose manifest is not known.
    """

    known: dict[str, Known] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    events: int = 0
    timings: ComparisonTimings = ComparisonTimings()

    def deployed(self) -> dict[str, Application]:
        """Return every application that is known to be deployed, by name."""
        return {name: one.application for name, one in self.known.items() if one.application is not None}

    def absent(self, name: str) -> bool:
        """Return whether it is known that an application is not deployed; not knowing it is something else."""
        one = self.known.get(name)
        if name in self.wanted:
            return False
        return self.complete if one is None else one.application is None and not one.gone

    def published(self, application: Application, said: str, now: float) -> bool:
        """Take wadm's word that an application is deployed; return whether anything is new.

        Args:
            application: as its manifest says.
            said: time of the event, as ``said_at`` writes it.
            now: monotonic seconds.
        """
        former = self.known.get(application.name, Known())
        if said <= former.said:
            return False
        self.events += 1
        self.wanted.pop(application.name, None)
        self.known[application.name] = Known(application, said, now, self.events, sure=False)
        return former.application != application

    def unpublished(self, name: str, said: str, now: float) -> bool:
        """Take wadm's word that an application is not deployed any more; it goes once wadm was asked, or cannot be.

        Returns whether wadm is to be asked: the word is new, and of an application that may be deployed.
        """
        former = self.known.pop(name, Known())
        # Put at the end: what was said last is forgotten last.
        self.known[name] = former
        if said <= former.said:
            return False
        self.events += 1
        ask = former.application is not None or name in self.wanted or not self.complete
        self.known[name] = Known(former.application, said, now, self.events, gone=ask, sure=not ask)
        self._forget()
        return ask

    def listed(self, models: Iterable[Model], asked: int, now: float) -> bool:
        """Take wadm's list; return whether anything is new.

        ``asked``: :attr:`events` when the question was asked: what was said since is news to this answer.
        """
        news = not self.complete
        self.complete = True
        deployed = {model.name: model.deployed for model in models if model.deployed}
        self.wanted = {}
        for name in {*self.known, *deployed}:
            news = self._compared(name, deployed.get(name, ""), asked, now) or news
        return news

    def _compared(self, name: str, version: str, asked: int, now: float) -> bool:
        """Hold one application to the list; return whether anything is new."""
        one = self.known.get(name, Known())
        if one.count > asked:
            return False
        held = one.application
        young = now - one.heard < self.timings.doubt
        if not version:
            if held is None or one.gone or not young:
                self.known[name] = replace(one, application=None, gone=False, sure=True)
                return held is not None or one.gone
            self.known[name] = replace(one, sure=False)
            return False
        if held is not None and held.version == version:
            self.known[name] = replace(one, gone=False, sure=not (young and one.gone))
        elif held is None or not young:
            self.wanted[name] = version
        else:
            self.known[name] = replace(one, sure=False)
        return False

    def got(self, application: Application, asked: int) -> bool:
        """Take the manifest of what wadm's list showed as deployed; return whether anything is new."""
        former = self.known.get(application.name, Known())
        if former.count > asked:
            return False
        self.wanted.pop(application.name, None)
        self.known[application.name] = replace(former, application=application, gone=False, sure=True)
        return former.application != application

    def reread(self, application: Application) -> None:
        """Take what an application is by configurations that changed, if it is deployed in that version."""
        one = self.known.get(application.name)
        if one is not None and one.application is not None and one.application.version == application.version:
            self.known[application.name] = replace(one, application=application)

    def refused(self, asked: int) -> bool:
        """Take it that wadm could not be asked; return whether anything is new: what it said to be gone goes."""
        gone = [name for name, one in self.known.items() if one.gone and one.count <= asked]
        for name in gone:
            self.known[name] = replace(self.known[name], application=None, gone=False)
        return bool(gone)

    def recheck_in(self, now: float) -> float | None:
        """Return in how many seconds wadm is to be asked again, None if nothing is in doubt.

        Once nothing was heard for ``doubt`` seconds; while events keep coming, ``busy`` seconds after the first. What
        is wanted after an answer could not be read: the next answer is the same.
        """
        heard = [one.heard for name, one in self.known.items() if not one.sure and name not in self.wanted]
        if not heard:
            return None
        return max(0.0, min(max(heard) + self.timings.doubt, min(heard) + self.timings.busy) - now)

    def _forget(self) -> None:
        """Forget the oldest of what is gone: whoever may publish there can invent names."""
        tombs = [name for name, one in self.known.items() if one.application is None]
        for name in tombs[: max(0, len(tombs) - _REMEMBERED)]:
            del self.known[name]
