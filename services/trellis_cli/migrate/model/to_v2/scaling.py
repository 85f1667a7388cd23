"""Replicas, pool sizes and host selectors of a workload, from the scalers of its components.

Pure. In: components that share a workload. Out: their numbers. Called by ``convert``.
Source: wadm 0.21 runs no instance of a component without a scaler; ``instances`` bounds the concurrent calls, and each
call has a new instance. On v2, ``replicas`` is the number of placements of the whole workload, and ``poolSize`` the
number of instances that are kept between calls, 0 for a new one per call; there is no bound, no weight, and no
placement on each host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trellis_cli.migrate.model.to_v2.reading import DAEMONSCALER, Piece, Scaler
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way
from trellis_cli.migrate.model.to_v2.routes import is_label

INT32_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Scale:
    """``instances``: those of v1, by path of the component. ``selector``: labels of the hosts, if any."""

    replicas: int
    instances: dict[str, int]
    selector: dict[str, str]

    def pool_of(self, piece: Piece) -> int:
        """Return the pool size of a component; one instance is a new one per call, as on v1."""
        count = self.instances[piece.place]
        return count if count > 1 else 0


def scale_of(components: Sequence[Piece], record: Record, target: str) -> Scale:
    """Return the numbers of a workload, and record each scaler; ``target``: the workload in the report."""
    instances: dict[str, int] = {}
    required: list[tuple[str, dict[str, str]]] = []
    for piece in components:
        instances[piece.place] = 1
        if not piece.scalers:
            record.note(
                piece.place,
                Reason.SCALER_MISSING,
                f"{piece.name} has no scaler, so wadm runs no instance of it; v2 runs one",
                "Remove the component from the application if it must not run.",
                Way.MANIFEST,
            )
        for at, scaler in enumerate(piece.scalers):
            if at:
                _second(piece, scaler, record)
                continue
            instances[piece.place] = _instances(piece, scaler, record, target)
            required += _placement(piece, scaler, record, target)
    replicas = 1 if any(instances.values()) or not instances else 0
    if replicas:
        _zeros(components, instances, record)
    return Scale(replicas, instances, _selector(required, record, target))


def _instances(piece: Piece, scaler: Scaler, record: Record, target: str) -> int:
    count, place = scaler.instances, f"{scaler.place}.properties.instances"
    record.done(scaler.place, target)
    if count is None or count > INT32_MOST:
        record.note(
            place,
            Reason.INSTANCES_INVALID,
            f"instances of {piece.name} is not a number from 0 to {INT32_MOST}",
            "The workload runs one instance; set poolSize.",
            Way.MANIFEST,
        )
        return 1
    record.done(place, target)
    if count > 1:
        record.note(
            place,
            Reason.INSTANCES_KEPT_WARM,
            f"{piece.name} served at most {count} calls at once; v2 keeps {count} instances between calls, without a "
            "bound",
            "Remove poolSize if the component must not keep its memory between calls.",
            Way.NOTHING,
        )
    return count


def _zeros(components: Iterable[Piece], instances: dict[str, int], record: Record) -> None:
    """Record components without instances in a workload that runs."""
    for piece in components:
        if piece.scalers and instances[piece.place] == 0:
            record.note(
                f"{piece.scalers[0].place}.properties.instances",
                Reason.INSTANCES_INVALID,
                f"{piece.name} has 0 instances, and the components of its workload run",
                "Remove the component from the application if it must not run.",
                Way.MANIFEST,
            )


def _placement(piece: Piece, scaler: Scaler, record: Record, target: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the labels that hosts must have, with the path of their spread."""
    if scaler.kind == DAEMONSCALER:
        record.note(
            scaler.place,
            Reason.DAEMONSCALER,
            f"{piece.name} runs on each host; v2 places replicas on random hosts, and has no placement on each host",
            "Set replicas to the number of hosts, or create one WorkloadDeployment per host with hostId.",
            Way.DEPLOYMENTS,
            Way.V1,
        )
    if len(scaler.spreads) > 1:
        record.note(
            f"{scaler.place}.properties.spread",
            Reason.WEIGHTED_SPREAD,
            f"{piece.name} is spread over {len(scaler.spreads)} host groups; v2 has no weights",
            f"Create one WorkloadDeployment per group: {_shares(scaler)}.",
            Way.DEPLOYMENTS,
        )
        return
    for spread in scaler.spreads:
        if invalid := [key for key, value in spread.requirements if not is_label(key, value)]:
            record.note(
                spread.place,
                Reason.HOST_LABELS,
                f"{piece.name} requires the labels {', '.join(invalid)}, which Kubernetes does not accept",
                "Rename them in the application and on the hosts.",
                Way.MANIFEST,
                Way.HOSTS,
            )
        elif not spread.requirements:
            record.done(spread.place, target)
        else:
            yield spread.place, dict(spread.requirements)


def _shares(scaler: Scaler) -> str:
    """Return the deployments that replace a weighted spread, with the instances that wadm gives to each group."""
    total = sum(max(0, spread.weight) for spread in scaler.spreads) or 1
    shares = []
    for spread in scaler.spreads:
        labels = ", ".join(f"{key}: {value}" for key, value in spread.requirements) or "any host"
        count = "" if scaler.instances is None else f", poolSize {scaler.instances * max(0, spread.weight) // total}"
        shares.append(f"{spread.name} (hostSelector {labels}{count})")
    return "; ".join(shares)


def _selector(required: list[tuple[str, dict[str, str]]], record: Record, target: str) -> dict[str, str]:
    """Return the labels that all components of a workload require; they share one host."""
    merged: dict[str, str] = {}
    for place, labels in required:
        differing = [key for key, value in labels.items() if merged.get(key, value) != value]
        if differing:
            record.note(
                place,
                Reason.HOST_LABELS,
                f"components that share a workload require different hosts, by {', '.join(sorted(differing))}",
                "Put the components into separate applications.",
                Way.MANIFEST,
            )
            continue
        merged |= labels
        record.done(place, target)
        record.note(
            place,
            Reason.HOST_LABELS,
            f"hostSelector needs hosts of v2 with the labels {', '.join(sorted(labels))}",
            "Set these labels on a host group of v2, or remove hostSelector.",
            Way.HOSTS,
        )
    return merged


def _second(piece: Piece, scaler: Scaler, record: Record) -> None:
    record.note(
        scaler.place,
        Reason.SECOND_SCALER,
        f"{piece.name} has more than one scaler; the first one is used",
        "Remove all scalers but one.",
        Way.MANIFEST,
    )
