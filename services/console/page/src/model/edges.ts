/* Edges of the map: the steps from the selected object to its related objects, and the lines that show them.

   Pure. In: the model, the selection, the positions of cells. Out: neighbours, and paths of SVG. Called by the map.
   Invariant: each related object is connected to the selection, by its own fields or, if they do not name a connection,
   directly. Source of the connections: docs/console/api.md, "Entities". */

import { idOf, isWasmOwner } from "./entities.ts";
import type { Entity } from "./entities.ts";
import type { Model } from "./model.ts";
import { reflected, related } from "./selectors.ts";

/** By the id of each related object: its neighbours that are one step nearer to the selection. */
export type Steps = ReadonlyMap<string, readonly string[]>;

/** Return the steps from an object to its related ones: Shim, node, owner of Wasm pods; host group, host, application, Service. */
export function steps(model: Model, id: string): Steps {
  const ids = new Set([id, ...[...related(model, id).values()].flat().map(idOf)]);
  const neighbours = neighboursOf([...ids].flatMap((one) => model.get(one) ?? []));
  const found = new Map<string, string[]>();
  let level = [id];
  while (level.length > 0) {
    const next = new Map<string, string[]>();
    for (const one of level) {
      for (const other of neighbours.get(one) ?? []) {
        if (ids.has(other) && other !== id && !found.has(other)) {
          const nearer = next.get(other);
          next.set(other, nearer ?? [one]);
          nearer?.push(one);
        }
      }
    }
    next.forEach((nearer, one) => found.set(one, nearer));
    level = [...next.keys()];
  }
  for (const one of ids) {
    if (one !== id && !found.has(one)) {
      found.set(one, [id]);
    }
  }
  return found;
}

function neighboursOf(entities: readonly Entity[]): ReadonlyMap<string, ReadonlySet<string>> {
  const applications = new Map<string, string[]>();
  for (const one of entities) {
    if (one.kind === "application") {
      for (const key of [`${one.lattice ?? ""}\n${one.application}`, reflected(one)]) {
        applications.set(key, [...(applications.get(key) ?? []), idOf(one)]);
      }
    }
  }
  const found = new Map<string, Set<string>>();
  const connect = (one: string, other: string | null): void => {
    if (other !== null) {
      found.set(one, (found.get(one) ?? new Set()).add(other));
      found.set(other, (found.get(other) ?? new Set()).add(one));
    }
  };
  for (const entity of entities) {
    for (const other of connectionsOf(entity, applications)) {
      connect(idOf(entity), other);
    }
  }
  return found;
}

/** Return the ids of the objects that an object names as its next ones towards nodes and Shims. */
function connectionsOf(entity: Entity, applications: ReadonlyMap<string, readonly string[]>): readonly (string | null)[] {
  if (isWasmOwner(entity)) {
    return entity.nodes.length > 0 ? entity.nodes : [entity.shim];
  }
  switch (entity.kind) {
    case "node":
      return Object.keys(entity.shims).map((name) => `shim/${name}`);
    case "host":
      return [entity.group, entity.node, ...entity.applications.flatMap((name) => applications.get(`${entity.lattice ?? ""}\n${name}`) ?? [])];
    case "service":
      return applications.get(reflected(entity)) ?? entity.hosts;
    case "whostgroup":
      return entity.hosts.length > 0 ? entity.hosts : entity.nodes;
    case "whost":
      return [entity.group, entity.node];
    case "workload":
      return [entity.deployment ?? entity.host, entity.service];
    case "workloaddeployment":
      return [...entity.hosts, ...entity.artifacts, entity.service];
    case "wservice":
      return entity.deployments.length > 0 ? entity.deployments : entity.hosts;
    default:
      return [];
  }
}

/** Return the objects in view from which the lines to a related object begin; `direct`: they are one step away. */
export function origins(those: Steps, id: string, inView: (id: string) => boolean): { readonly from: readonly string[]; readonly direct: boolean } {
  let nearer: readonly string[] = those.get(id) ?? [];
  for (let direct = true; nearer.length > 0; direct = false) {
    const from = nearer.filter(inView);
    if (from.length > 0) {
      return { from, direct };
    }
    nearer = [...new Set(nearer.flatMap((one) => those.get(one) ?? []))];
  }
  return { from: [], direct: false };
}

/** The position of a cell, or of a Shim above the list of nodes, in pixels. */
export interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  /** The number of the lane, its right border, and the top of its list. */
  readonly lane: number;
  readonly laneRight: number;
  readonly listTop: number;
}

/** Half of the space between two cells, and the space at the left of a list. */
const GAP = 2;
const MARGIN = 5;

/** Return the line between two boxes as the path of an SVG. It leaves the texts of its own lanes free: it follows the
    space between cells, the left margin of a list, and the border of a lane. */
export function route(one: Box, other: Box): string {
  const [from, to] = one.lane < other.lane || (one.lane === other.lane && one.top <= other.top) ? [one, other] : [other, one];
  const [start, end] = [(from.top + from.bottom) / 2, (to.top + to.bottom) / 2];
  const isShim = from.bottom < from.listTop;
  const down = `M${(from.left + from.right) / 2} ${from.bottom}V${from.listTop - MARGIN}`;
  if (from.lane === to.lane && isShim) {
    return `${down}H${to.left - GAP}V${end}H${to.left}`;
  }
  if (from.lane === to.lane) {
    return `M${from.left} ${start}H${Math.min(from.left, to.left) - MARGIN}V${end}H${to.left}`;
  }
  const isLast = from.laneRight - from.right < from.right - from.left;
  const y = isShim ? from.listTop - MARGIN : isLast ? start : from.bottom + GAP;
  const bend = (to.left - from.laneRight) / 2;
  const out = isShim ? down : isLast ? `M${from.right} ${y}` : `M${from.right} ${start}h${GAP}V${y}`;
  return `${out}H${from.laneRight}C${from.laneRight + bend} ${y} ${to.left - bend} ${end} ${to.left} ${end}`;
}

/** Return the number of related rows of a list, and of those above and below its first and last row in view. Without a row
    in view all are below. */
export function outOfView(ids: readonly string[], those: Steps, first: number, last: number): { readonly all: number; readonly above: number; readonly below: number } {
  const counts = { all: 0, above: 0, below: 0 };
  ids.forEach((id, at) => {
    if (those.has(id)) {
      counts.all += 1;
      counts.above += first <= last && at < first ? 1 : 0;
      counts.below += at > last ? 1 : 0;
    }
  });
  return counts;
}
