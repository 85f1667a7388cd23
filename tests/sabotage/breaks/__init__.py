"""The breaks by area: one line each, with the promise that it breaks and the test that catches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sabotage.breaking import Break
from sabotage.breaks import (
    applications,
    bus,
    chart,
    console,
    controllers,
    explanations,
    installer,
    kubernetes,
    lattices,
    leadership,
    nodes,
    rollouts,
    secrets,
    v2,
    wasm_pods,
    workloads,
)

AREAS: Final[Mapping[str, tuple[Break, ...]]] = {
    "Writes to Kubernetes": kubernetes.WRITES,
    "Leadership": leadership.LEADERSHIP,
    "Claim of the nodes": leadership.CLAIM,
    "Circuit breakers": leadership.CIRCUIT_BREAKERS,
    "Informers": kubernetes.INFORMERS,
    "Refusals and credential plugins": kubernetes.REFUSALS,
    "Secrets in logs, spans and terminals": kubernetes.SECRECY,
    "Acknowledgements": bus.ACKNOWLEDGEMENTS,
    "Dead letters and versions": bus.DEAD_LETTERS,
    "Users of the bus": bus.USERS_OF_THE_BUS,
    "Labels of nodes": nodes.LABELS,
    "Deleted Shims": nodes.DELETED_SHIMS,
    "Slots": nodes.SLOTS,
    "Rollouts": rollouts.ROLLOUT,
    "Canaries and signatures": rollouts.CANARIES,
    "Pods during rollouts": rollouts.PODS,
    "Downloads of the installer": installer.DOWNLOADS,
    "Files on nodes": installer.DISK,
    "Host groups": lattices.HOST_GROUPS,
    "Hosts": lattices.HOSTS,
    "Services of applications": lattices.SERVICES,
    "Endpoints": lattices.ENDPOINTS,
    "Applications": applications.APPLICATIONS,
    "Lifecycle of Applications": applications.LIVES,
    "Lattices of Applications": applications.HOMES,
    "Migration to wasmCloud v2": workloads.TO_V2,
    "Grants of Secrets": secrets.GRANTS,
    "Tokens and reads of Secrets": secrets.TOKENS,
    "Responses with Secrets": secrets.ANSWERS,
    "Confinement of controllers": controllers.CONFINEMENT,
    "Resources of controllers": controllers.COSTS,
    "Snapshots of controllers": controllers.SNAPSHOTS,
    "Console log-in": console.DOORS,
    "Console viewers": console.VIEWERS,
    "Causes of wasmCloud v2": v2.CAUSES,
    "Host groups of wasmCloud v2": v2.PODS,
    "Sources of wasmCloud v2": v2.SOURCES,
    "Display of wasmCloud v2": v2.DISPLAY,
    "Events of wasmCloud v2": v2.EVENTS,
    "Pages of nodes and Shims": (*explanations.UNREAD, *explanations.ENDED),
    "Values of the chart": chart.VALUES,
    "Upgrades of the chart": chart.UPGRADES,
    "Causes of Wasm pods": wasm_pods.CAUSES,
    "Reports about workloads of Wasm pods": wasm_pods.REPORTS,
}
BREAKS: Final = tuple(item for breaks in AREAS.values() for item in breaks)
