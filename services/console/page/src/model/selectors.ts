/* Relations of entities, and the filters of views.

   Pure. In: the model, filters. Out: rows and related ids. Called by views. Source of the relations: docs/console/api.md,
   "Entities". */

import { HEALTHS, idOf, isWasmOwner, STAGES, WASM_KINDS } from "./entities.ts";
import type {
  Application, Artifact, ByKind, Controller, Entity, Host, HostGroup, Node, Part, Service, Shim, ShimOnNode, Stage, Health, V2Host, V2HostGroup, V2Service,
  WasmOwner, Workload, WorkloadDeployment,
} from "./entities.ts";
import type { Model } from "./model.ts";

export interface Shown {
  readonly text: string;
  readonly health: string;
}

/** Return whether an entity has each word of the text in its id, its health or its fields. */
export function matches(entity: Entity, text: string): boolean {
  if (text === "") {
    return true;
  }
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const found = searched(entity);
  return words.every((word) => found.includes(word));
}

function searched(entity: Entity): string {
  const more: (string | null)[] = [];
  if (isWasmOwner(entity)) {
    more.push(entity.shim, entity.runtime_class, entity.executor);
  }
  switch (entity.kind) {
    case "node":
      more.push(entity.phase, entity.architecture, ...Object.keys(entity.shims));
      break;
    case "hostgroup":
    case "host":
      more.push(entity.lattice, ...entity.applications);
      break;
    case "application":
    case "service":
      more.push(entity.application, entity.lattice);
      break;
    case "whost":
      more.push(entity.group, entity.pod, entity.host_id, entity.address);
      break;
    case "workload":
    case "workloaddeployment":
      more.push(...entity.images);
      break;
    case "artifact":
      more.push(entity.image);
      break;
    default:
      break;
  }
  return [idOf(entity), entity.health, entity.reason, entity.message, ...more].join("\n").toLowerCase();
}

/** Return the entities that match, degraded and missing ones first, otherwise in the given order. */
export function filtered<E extends Entity>(entities: readonly E[], shown: Shown): readonly E[] {
  const found = entities.filter((one) => (shown.health === "" || one.health === shown.health) && matches(one, shown.text));
  const troubled = found.filter((one) => isBad(one));
  return troubled.length === 0 || troubled.length === found.length
    ? found
    : [...troubled, ...found.filter((one) => !isBad(one))];
}

function isBad(one: Entity): boolean {
  return one.health === "Degraded" || one.health === "Missing";
}

/** Return the number of entities of each state of health, the most urgent first, without empty ones. */
export function tally(entities: readonly Entity[]): readonly (readonly [Health, number])[] {
  const counts = new Map<Health, number>();
  for (const one of entities) {
    counts.set(one.health, (counts.get(one.health) ?? 0) + 1);
  }
  return HEALTHS.flatMap((health) => (counts.has(health) ? [[health, counts.get(health) ?? 0] as const] : []));
}

export type HostRow = { readonly key: string; readonly depth: 0 | 1; readonly entity: HostGroup | Host | V2HostGroup | V2Host } | Heading;
export type AppRow = { readonly key: string; readonly depth: 1 | 2; readonly entity: Application | Service | V2App | WasmOwner } | Heading;
export type V2App = WorkloadDeployment | Workload | V2Service | Artifact;

/** A row that is a heading of the rows below it. */
export interface Heading {
  readonly key: string;
  readonly heading: string;
}

/** Return host groups, each followed by its hosts; also groups with a host that matches. Those of wasmCloud v2 are last. */
export function hostRows(model: Model, shown: Shown): HostRow[] {
  const below = new Map<string, Host[]>();
  for (const host of filtered(model.all("host"), shown)) {
    const group = host.group !== null && model.get(host.group) !== undefined ? host.group : "";
    below.set(group, [...(below.get(group) ?? []), host]);
  }
  const rows: HostRow[] = [];
  const groups = model.all("hostgroup");
  const fitting = new Set<HostGroup>(filtered(groups, shown));
  for (const group of groups) {
    const id = idOf(group);
    if (fitting.has(group) || below.has(id)) {
      rows.push({ key: id, depth: 0, entity: group });
      rows.push(...(below.get(id) ?? []).map((host) => ({ key: idOf(host), depth: 1 as const, entity: host })));
    }
  }
  const alone = below.get("") ?? [];
  if (alone.length > 0) {
    rows.push({ key: "#alone", heading: "Hosts without a visible host group" });
    rows.push(...alone.map((host) => ({ key: idOf(host), depth: 1 as const, entity: host })));
  }
  return [...rows, ...v2HostRows(model, shown)];
}

/** Return the host groups of wasmCloud v2, each followed by its hosts; then hosts without one. */
function v2HostRows(model: Model, shown: Shown): HostRow[] {
  const hosts = filtered(model.all("whost"), shown);
  const below = new Map<string, V2Host[]>();
  for (const host of hosts) {
    const group = host.group !== null && model.get(host.group) !== undefined ? host.group : "";
    below.set(group, [...(below.get(group) ?? []), host]);
  }
  const rows: HostRow[] = [];
  const fitting = new Set<V2HostGroup>(filtered(model.all("whostgroup"), shown));
  for (const group of model.all("whostgroup")) {
    const own = below.get(idOf(group)) ?? [];
    if (fitting.has(group) || own.length > 0) {
      rows.push({ key: idOf(group), depth: 0, entity: group });
      rows.push(...own.map((host) => ({ key: idOf(host), depth: 1 as const, entity: host })));
    }
  }
  const alone = below.get("") ?? [];
  if (alone.length > 0) {
    rows.push({ key: "#v2 alone", heading: "wasmCloud v2: hosts without a host group" });
    rows.push(...alone.map((host) => ({ key: idOf(host), depth: 1 as const, entity: host })));
  }
  return rows.length > 0 ? [{ key: "#v2 hosts", heading: "wasmCloud v2" }, ...rows] : [];
}

/** Return applications by lattice, each followed by its reflected Services; then wasmCloud v2. */
export function appRows(model: Model, shown: Shown): AppRow[] {
  const services = new Map<string, Service[]>();
  const known = new Set(model.all("application").map(reflected));
  for (const service of filtered(model.all("service"), shown)) {
    const key = known.has(reflected(service)) ? reflected(service) : "";
    services.set(key, [...(services.get(key) ?? []), service]);
  }
  const lattices = new Map<string, AppRow[]>();
  const fitting = new Set<Application>(filtered(model.all("application"), shown));
  for (const application of model.all("application")) {
    const own = services.get(reflected(application)) ?? [];
    if (fitting.has(application) || own.length > 0) {
      const lattice = application.lattice ?? "";
      const rows = lattices.get(lattice) ?? [];
      rows.push({ key: idOf(application), depth: 1, entity: application });
      rows.push(...own.map((one) => ({ key: idOf(one), depth: 2 as const, entity: one })));
      lattices.set(lattice, rows);
    }
  }
  const found: AppRow[] = [];
  for (const lattice of [...lattices.keys()].sort()) {
    found.push({ key: `#lattice ${lattice}`, heading: lattice === "" ? "No lattice yet" : `Lattice ${lattice}` });
    found.push(...(lattices.get(lattice) ?? []));
  }
  const alone = services.get("") ?? [];
  if (alone.length > 0) {
    found.push({ key: "#services", heading: "Services without a visible application" });
    found.push(...alone.map((one) => ({ key: idOf(one), depth: 2 as const, entity: one })));
  }
  return [...found, ...wasmRows(model, shown), ...v2AppRows(model, shown)];
}

/** Return all owners of Wasm pods, by namespace and name of each kind. */
export function wasmOwners(model: Model): readonly WasmOwner[] {
  return WASM_KINDS.flatMap((kind) => model.all(kind));
}

/** Return the owners of Wasm pods by Shim: an owner is one row, however many pods it has. */
function wasmRows(model: Model, shown: Shown): AppRow[] {
  const shims = new Map<string, AppRow[]>();
  for (const owner of filtered(wasmOwners(model), shown)) {
    const shim = owner.shim?.slice("shim/".length) ?? "";
    const rows = shims.get(shim) ?? [];
    rows.push({ key: idOf(owner), depth: 1, entity: owner });
    shims.set(shim, rows);
  }
  return [...shims.keys()].sort().flatMap((shim) => [
    { key: `#shim ${shim}`, heading: shim === "" ? "Wasm pods without a visible Shim" : `Wasm pods of Shim ${shim}` },
    ...(shims.get(shim) ?? []),
  ]);
}

/** Return WorkloadDeployments, each followed by its Service; then Services, Workloads and Artifacts without one. */
function v2AppRows(model: Model, shown: Shown): AppRow[] {
  const fitting = new Set<Entity>([...filtered(model.all("workloaddeployment"), shown), ...filtered(model.all("wservice"), shown)]);
  const rows: AppRow[] = [];
  const placed = new Set<string>();
  for (const deployment of model.all("workloaddeployment")) {
    const found = deployment.service === null ? undefined : model.get(deployment.service);
    const service = found?.kind === "wservice" && fitting.has(found) && !placed.has(idOf(found)) ? found : undefined;
    if (fitting.has(deployment) || service !== undefined) {
      rows.push({ key: idOf(deployment), depth: 1, entity: deployment });
    }
    if (service !== undefined) {
      placed.add(idOf(service));
      rows.push({ key: idOf(service), depth: 2, entity: service });
    }
  }
  const services = model.all("wservice").filter((one) => fitting.has(one) && !placed.has(idOf(one)));
  const workloads = filtered(model.all("workload").filter((one) => one.deployment === null), shown);
  rows.push(...[...services, ...workloads].map((one) => ({ key: idOf(one), depth: 1 as const, entity: one })));
  const artifacts = filtered(model.all("artifact"), shown).map((one) => ({ key: idOf(one), depth: 1 as const, entity: one }));
  return [
    ...(rows.length > 0 ? [{ key: "#v2", heading: "wasmCloud v2" }, ...rows] : []),
    ...(artifacts.length > 0 ? [{ key: "#v2 artifacts", heading: "wasmCloud v2: Artifacts" }, ...artifacts] : []),
  ];
}

/** Return the value of an untrusted name in a record: every object inherits `constructor`. */
export function own<V>(record: Readonly<Record<string, V>>, name: string): V | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** Return the key that an application and its reflected Services have in common. */
export function reflected(one: Application | Service): string {
  return `${one.namespace ?? ""}\n${one.lattice ?? ""}\n${one.application}`;
}

/** Return the related entities of an entity, by relation. */
export function related(model: Model, id: string): ReadonlyMap<string, readonly Entity[]> {
  const entity = model.get(id);
  const found = new Map<string, readonly Entity[]>();
  const put = (how: string, those: readonly (Entity | undefined)[]): void => {
    const there = those.filter((one) => one !== undefined);
    if (there.length > 0) {
      found.set(how, there);
    }
  };
  switch (entity?.kind) {
    case "node": {
      const hosts = model.all("host").filter((host) => host.node === id);
      put("Shims", Object.keys(entity.shims).map((name) => model.get(`shim/${name}`)));
      putHosts(model, hosts, put);
      putLed(model, hosts, put);
      put("Hosts of wasmCloud v2", model.all("whost").filter((host) => host.node === id));
      put("Host groups of wasmCloud v2", model.all("whostgroup").filter((group) => group.nodes.includes(id)));
      putDeployed(model, model.all("whost").filter((host) => host.node === id), put);
      put("Wasm pods", wasmOwners(model).filter((owner) => owner.nodes.includes(id)));
      put("Wasm pods on more nodes than are listed", wasmOwners(model).filter((owner) => owner.nodes_all > owner.nodes.length && onShim(entity, owner) && !owner.nodes.includes(id)));
      break;
    }
    case "shim":
      put("Wasm pods", wasmOwners(model).filter((owner) => owner.shim === id));
      put("Nodes without this version", model.all("node").filter((node) => (own(node.shims, entity.name)?.stage ?? "Updated") !== "Updated"));
      put("Nodes", model.all("node").filter((node) => own(node.shims, entity.name) !== undefined));
      break;
    case "hostgroup": {
      const hosts = model.all("host").filter((host) => host.group === id);
      put("Hosts", hosts);
      put("Nodes", unique(hosts.map((host) => host.node)).map((node) => model.get(node)));
      put("Applications", running(model, entity.lattice, entity.applications));
      put("Services", servicesOn(model, hosts));
      break;
    }
    case "host":
      put("Host group", [entity.group === null ? undefined : model.get(entity.group)]);
      put("Node", [entity.node === null ? undefined : model.get(entity.node)]);
      put("Applications", running(model, entity.lattice, entity.applications));
      put("Services", servicesOn(model, [entity]));
      break;
    case "application": {
      const hosts = model.all("host").filter((host) => host.lattice === entity.lattice && host.applications.includes(entity.application));
      put("Services", model.all("service").filter((service) => reflected(service) === reflected(entity)));
      putHosts(model, hosts, put);
      put("Nodes", unique(hosts.map((host) => host.node)).map((node) => model.get(node)));
      break;
    }
    case "service": {
      const hosts = entity.hosts.map((host) => model.get(host)).filter((host): host is Host => host?.kind === "host");
      put("Application", model.all("application").filter((one) => reflected(one) === reflected(entity)));
      putHosts(model, hosts, put);
      put("Nodes", unique(hosts.map((host) => host.node)).map((node) => model.get(node)));
      break;
    }
    case "whostgroup":
    case "whost":
    case "workload":
    case "workloaddeployment":
    case "artifact":
    case "wservice":
      putV2(model, entity, put);
      break;
    case "deployment":
    case "statefulset":
    case "daemonset":
    case "job":
    case "cronjob":
    case "spinapp":
    case "pod":
      put("Shim", [entity.shim === null ? undefined : model.get(entity.shim)]);
      put("Nodes", entity.nodes.map((node) => model.get(node)));
      break;
    default:
      break;
  }
  return found;
}

/** Return whether a node has the Shim of an owner. */
function onShim(node: Node, owner: WasmOwner): boolean {
  return owner.shim !== null && own(node.shims, owner.shim.slice("shim/".length)) !== undefined;
}

/** Add the related entities of wasmCloud v2: host group, host, Workload, WorkloadDeployment, Service. */
function putV2(model: Model, entity: V2HostGroup | V2Host | V2App, put: (how: string, those: readonly (Entity | undefined)[]) => void): void {
  const id = idOf(entity);
  const all = (ids: readonly (string | null)[]): (Entity | undefined)[] => unique(ids).map((one) => model.get(one));
  const groups = (hosts: readonly string[]): (Entity | undefined)[] => {
    const there = hosts.map((host) => model.get(host)).filter((host): host is V2Host => host?.kind === "whost");
    return all(there.map((host) => host.group));
  };
  switch (entity.kind) {
    case "whostgroup":
      put("Hosts", all(entity.hosts));
      put("Nodes", all(entity.nodes));
      putDeployed(model, all(entity.hosts), put);
      break;
    case "whost":
      put("Host group", all([entity.group]));
      put("Node", all([entity.node]));
      put("Workloads", model.all("workload").filter((one) => one.host === id));
      putDeployed(model, [entity], put);
      break;
    case "workload":
      put("WorkloadDeployment", all([entity.deployment]));
      put("Host", all([entity.host]));
      put("Host group", entity.host === null ? [] : groups([entity.host]));
      put("Service", all([entity.service]));
      break;
    case "workloaddeployment":
      put("Workloads", model.all("workload").filter((one) => one.deployment === id));
      put("Hosts", all(entity.hosts));
      put("Host groups", groups(entity.hosts));
      put("Service", all([entity.service]));
      put("Artifacts", all(entity.artifacts));
      break;
    case "artifact":
      put("WorkloadDeployments", model.all("workloaddeployment").filter((one) => one.artifacts.includes(id)));
      break;
    case "wservice":
      put("WorkloadDeployments", all(entity.deployments));
      put("Workloads", model.all("workload").filter((one) => one.service === id));
      put("Hosts", all(entity.hosts));
      put("Host groups", groups(entity.hosts));
      break;
  }
}

/** Add the WorkloadDeployments on hosts of wasmCloud v2, and their Services. */
function putDeployed(model: Model, hosts: readonly (Entity | undefined)[], put: (how: string, those: readonly (Entity | undefined)[]) => void): void {
  const ids = new Set(hosts.flatMap((host) => (host === undefined ? [] : [idOf(host)])));
  const deployments = model.all("workloaddeployment").filter((one) => one.hosts.some((host) => ids.has(host)));
  put("WorkloadDeployments", deployments);
  put("Services of WorkloadDeployments", unique(deployments.map((one) => one.service)).map((service) => model.get(service)));
}

function putHosts(model: Model, hosts: readonly Host[], put: (how: string, those: readonly (Entity | undefined)[]) => void): void {
  put("Hosts", hosts);
  put("Host groups", unique(hosts.map((host) => host.group)).map((group) => model.get(group)));
}

/** Add the applications of hosts, and the Services with endpoints there. */
function putLed(model: Model, hosts: readonly Host[], put: (how: string, those: readonly (Entity | undefined)[]) => void): void {
  put("Applications", [...new Set(hosts.flatMap((host) => running(model, host.lattice, host.applications)))]);
  put("Services", servicesOn(model, hosts));
}

/** Return the Services with endpoints on hosts. */
function servicesOn(model: Model, hosts: readonly Host[]): Service[] {
  const ids = new Set(hosts.map(idOf));
  return model.all("service").filter((service) => service.hosts.some((one) => ids.has(one)));
}

function running(model: Model, lattice: string | null, names: readonly string[]): Application[] {
  return model.all("application").filter((one) => one.lattice === lattice && names.includes(one.application));
}

function unique(ids: readonly (string | null)[]): string[] {
  return [...new Set(ids)].filter((id) => id !== null);
}

export interface StageRow {
  readonly node: Node;
  readonly on: ShimOnNode;
}

const STAGE_ORDER: readonly Stage[] = ["Failed", "InProgress", "Blocked", "Removing", "Waiting", "Updated"];

/** Return the nodes of a rollout, the most urgent first. */
export function rolloutRows(model: Model, shim: string, shown: { readonly text: string; readonly stage: string }): StageRow[] {
  const rows: StageRow[] = [];
  for (const node of model.all("node")) {
    const on = own(node.shims, shim);
    if (on !== undefined && (shown.stage === "" || on.stage === shown.stage) && matches(node, shown.text)) {
      rows.push({ node, on });
    }
  }
  return rows.sort((one, other) => STAGE_ORDER.indexOf(one.on.stage) - STAGE_ORDER.indexOf(other.on.stage));
}

/** Return the progress of a rollout: nodes at each stage, their number, and the updated share, from 0 to 1. */
export function progress(shim: Shim): { readonly counts: readonly (readonly [Stage, number])[]; readonly all: number; readonly done: number } {
  const counts = STAGES.flatMap((stage) => {
    const count = shim.counts[stage] ?? 0;
    return count > 0 ? [[stage, count] as const] : [];
  });
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  return { counts, all, done: all === 0 ? 1 : (shim.counts.Updated ?? 0) / all };
}

export type Column = "name" | "health" | "resident" | "disk" | "wakes" | "p99" | "calls" | "traps";

/** Return controllers by a column; largest figures first, those without one last. */
export function controllerRows(model: Model, shown: Shown, by: string): readonly Controller[] {
  const found = filtered(model.all("controller"), shown);
  const figure = own(FIGURES, by);
  return figure === undefined ? found : [...found].sort((one, other) => (figure(other) ?? -1) - (figure(one) ?? -1));
}

export const FIGURES: Readonly<Partial<Record<Column, (one: Controller) => number | null>>> = {
  resident: (one) => one.resident_bytes,
  disk: (one) => one.disk_bytes,
  wakes: (one) => one.wakes,
  p99: (one) => milliseconds(one.wake_p99),
  calls: (one) => one.calls,
  traps: (one) => one.traps,
};

/** Return a duration as the status of a controller has it (`1.5ms`, `2s`, or a number of seconds) in milliseconds. */
export function milliseconds(text: string | number | null): number | null {
  if (typeof text === "number") {
    return text * 1000;
  }
  const found = /^([0-9.]+)(us|µs|ms|s|m)?$/.exec(text ?? "");
  const unit = { us: 0.001, µs: 0.001, ms: 1, s: 1000, m: 60_000 }[found?.[2] ?? "s"];
  return found === null || unit === undefined ? null : Number(found[1]) * unit;
}

/** Read status of wasmCloud v2, and of its parts, which exist only while it is installed. */
export const V2_PARTS = ["wasmcloud-v2", "heartbeats", "whosts", "wpods", "workloads", "workloadreplicasets", "workloaddeployments", "artifacts", "wservices", "wslices"] as const;

/** Read status of Wasm pods and their owners. All but the first exist only while a Shim does. */
export const WASM_PARTS = [
  "wasmpods", "deployments", "statefulsets", "daemonsets", "wasmjobs", "cronjobs", "spinapps", "spinappexecutors", "runtimeclasses", "podevents",
] as const;

/** Parts of other projects: a cluster without their CRDs lacks nothing. */
const OTHERS: readonly string[] = [V2_PARTS[0], "spinapps", "spinappexecutors"];

/** Return the reasons that objects of these parts are not shown, each once: some parts read the same kind. */
export function obstacles(model: Model, parts: readonly string[]): readonly { readonly part: Part; readonly message: string; readonly do: string | null }[] {
  const found: { part: Part; message: string; do: string | null }[] = [];
  for (const name of parts) {
    const part = model.get(`part/${name}`) as ByKind["part"] | undefined;
    if (part === undefined) {
      continue;
    }
    for (const one of part.lacking.filter(({ message }) => found.every((other) => other.message !== message))) {
      found.push({ part, message: one.message, do: one.do });
    }
    if (part.lacking.length === 0 && !part.defined && !OTHERS.includes(name)) {
      found.push({ part, message: `the CRD of ${name} is not installed`, do: "install it with `trellis crds apply`" });
    }
  }
  return found;
}

/** Return whether all permitted objects of these parts were read. */
export function isRead(model: Model, parts: readonly string[]): boolean {
  return parts.every((name) => {
    const part = model.get(`part/${name}`) as ByKind["part"] | undefined;
    return part !== undefined && (part.synced || !part.defined || part.lacking.length > 0);
  });
}
