"""A small model of both sides of one application: an object as an API server has it, and a model as wadm 0.21 has it.

Users act on either; ``sync`` is application_manager, which may be killed between any two actions, and forgets then all
that is not on one of the sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from application_manager.domain.actions import (
    Action,
    AddFinalizer,
    CreateObject,
    DeleteModel,
    DeleteObject,
    Deploy,
    Put,
    Record,
    RemoveFinalizer,
    Undeploy,
    WriteSpec,
)
from application_manager.domain.decide import decide
from application_manager.domain.progress import SETTLED, Progress
from application_manager.domain.sides import Absence, Model, Object, Side, Win
from application_manager.domain.snapshot import Snapshot

ROUNDS = 12
"""More than any history needs: an endless exchange of writes is found by them."""


class Killed(Exception):  # noqa: N818 - no error
    """The process ended."""


@dataclass
class TwoSides:
    """``log``: every action that was carried out. ``progress``: what application_manager remembers.

    ``undecided``: what was put and does not run may be deployed next.
    """

    object: Object | None = None
    model: Model | None = None
    lost: bool = True
    unavailable: bool = False
    bucket: str = "0"
    now: float = 0.0
    progress: Progress = SETTLED
    undecided: bool = False
    log: list[Action] = field(default_factory=list)

    # What people do in Kubernetes.

    def apply(self, digest: str, version: str = "") -> None:
        if self.object is None:
            self.object = Object(digest, version, finalizer=False)
        elif not self.object.deleting:
            self.object = replace(self.object, digest=digest, version=version, others=True)

    def mark(self, undeploy: bool) -> None:
        if self.object is not None and not self.object.deleting:
            self.object = replace(self.object, undeploy=undeploy)

    def delete(self) -> None:
        if self.object is not None:
            self.object = replace(self.object, deleting=True) if self.object.finalizer else None

    # What people do with wash; each says whether wadm took it.

    def put(self, digest: str, version: str) -> bool:
        if self.model is not None and version in self.model.digests:
            return False
        former = self.model or Model((), bucket=self.bucket)
        self.model = replace(former, versions=(*former.versions, (version, digest)))
        return True

    def deploy(self, version: str) -> bool:
        if self.model is None or version not in self.model.digests:
            return False
        self.model = replace(self.model, deployed=version)
        return True

    def undeploy(self) -> None:
        if self.model is not None:
            self.model = replace(self.model, deployed="")

    def purge(self) -> None:
        if self.model is not None:
            self.model, self.lost = None, False

    def lose(self) -> None:
        """Lose the bucket, with all proofs of deletions."""
        self.model, self.lost, self.bucket = None, True, str(int(self.bucket) + 1)

    # application_manager.

    def snapshot(self) -> Snapshot:
        absence = Absence.UNAVAILABLE if self.unavailable else Absence.LOST if self.lost else Absence.DELETED
        wadm = self.model if self.model is not None and not self.unavailable else absence
        newer = (self.model.newest, 0.0) if self.undecided and self.model is not None else None
        return Snapshot(self.object, wadm, now=self.now, progress=replace(self.progress, newer=newer))

    def once(self) -> None:
        """Carry out one decision, after which people may act."""
        decision = decide(self.snapshot())
        for action in decision.actions:
            self.log.append(action)
            self._carry_out(action, decision.winner)

    def sync(self, survive: int | None = None) -> None:
        """Work until nothing is left to do; with ``survive`` be killed after so many actions."""
        won: Side | None = None
        for _ in range(ROUNDS):
            decision = decide(self.snapshot())
            won = decision.winner or won
            if not decision.actions:
                return
            for action in decision.actions:
                if survive is not None and survive <= 0:
                    self.progress = SETTLED
                    raise Killed
                survive = None if survive is None else survive - 1
                self.log.append(action)
                self._carry_out(action, won)
            if isinstance(decision.actions[-1], Record) and decision.again != 0.0:
                assert not decide(self.snapshot()).actions, "its own status causes no further run"
        raise AssertionError(f"no end of it: {self.log[-6:]}")

    def _carry_out(self, action: Action, won: Side | None) -> None:
        match action:
            case Put(version=version):
                assert self.object is not None
                assert self.put(self.object.digest, version), f"wadm has {version} already"
            case Deploy(version=version):
                self.progress = self.progress.with_request(action)
                assert self.deploy(version), f"wadm has no {version}"
            case Undeploy():
                self.progress = self.progress.with_request(action)
                self.undeploy()
            case DeleteModel():
                self.purge()
            case Record(base=base):
                found = self._found()
                wins = found.wins if won is None else (*found.wins, Win(won, self.now))[-4:]
                self.object, self.progress = replace(found, base=base, wins=wins), self.progress.recorded()
            case _:
                self._write(action)

    def _write(self, action: Action) -> None:
        match action:
            case AddFinalizer():
                self.object = replace(self._found(), finalizer=True)
            case RemoveFinalizer() | DeleteObject():
                self.object = None
            case CreateObject(version=version):
                assert self.model is not None
                self.object = Object(self.model.digests[version], version, others=False)
            case WriteSpec(version=version):
                assert self.model is not None
                found, digest = self._found(), self.model.digests[version]
                serial = 0 if found.base is None else found.base.serial
                self.object = replace(found, digest=digest, version=version, written=(digest, serial))

    def _found(self) -> Object:
        assert self.object is not None
        return self.object

    def state(self) -> tuple[str, bool] | None:
        """Return what both sides have, or fail: digest, and whether it runs."""
        if self.object is None or self.model is None:
            assert self.object is None, "wadm lost it"
            assert self.model is None, "Kubernetes lost it"
            return None
        shown = self.model.shown(self.object.base)
        assert self.model.digests[shown] == self.object.digest, "the sides differ"
        deployed = self.model.deployed == shown
        assert deployed == self.object.deployed, "the sides differ in whether it runs"
        return self.object.digest, deployed


Step = Callable[[TwoSides], object]
