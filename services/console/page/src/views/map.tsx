/* The map: nodes, host groups and hosts, applications, Services and owners of Wasm pods; a click shows the cause.

   In: the model, the filters of the address. Invariant: related resources of the selection are marked, also for screen
   readers, and connected by lines in a window that shows all lanes. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";

import { drawn, currentModel, place, set } from "../live/store.ts";
import { steps as stepsOf } from "../model/edges.ts";
import type { Steps } from "../model/edges.ts";
import { idOf, isWasmOwner } from "../model/entities.ts";
import type { Application, Entity, Host, HostGroup, Node, Service, V2Host, V2HostGroup, WasmOwner } from "../model/entities.ts";
import { appRows, filtered, hostRows, V2_PARTS, WASM_PARTS, wasmOwners } from "../model/selectors.ts";
import type { AppRow, HostRow, V2App } from "../model/selectors.ts";
import { bytes, called, cause, counted, figure, KIND_WORDS, STAGE_HEALTHS, STAGE_WORDS } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { narrow } from "../ui/narrow.ts";
import { Heading, Lacking, Empty, shownNow, Tally } from "../ui/parts.tsx";
import { Virtual } from "../ui/virtual.tsx";
import type { CellProps } from "../ui/virtual.tsx";
import { Edges, OutOfView } from "./edges.tsx";

const LANES = [
  ["nodes", "Nodes"],
  ["hosts", "Hosts"],
  ["apps", "Applications"],
] as const;

export function MapView(): JSX.Element {
  const lane = place.value.query["lane"] ?? "nodes";
  const selected = place.value.query["select"] ?? "";
  const steps = useMemo(() => stepsOf(currentModel(), selected), [drawn.value, selected]);
  const counts = {
    nodes: currentModel().all("node").length,
    hosts: currentModel().all("host").length + currentModel().all("whost").length,
    apps: currentModel().all("application").length + currentModel().all("workloaddeployment").length + wasmOwners(currentModel()).length,
  };
  return (
    <div class="map">
      <div class="lane-choice" role="group" aria-label="Lane">
        {LANES.map(([name, title]) => (
          <button key={name} type="button" aria-pressed={lane === name} onClick={() => set({ lane: name === "nodes" ? "" : name }, "replace")}>
            {title} <span class="count">{figure(counts[name])}</span>
          </button>
        ))}
      </div>
      <div class={`lanes shows-${lane}`}>
        {selected === "" || narrow.value ? null : <Edges selected={selected} steps={steps} />}
        <NodesLane selected={selected} steps={steps} />
        <HostsLane selected={selected} steps={steps} />
        <AppsLane selected={selected} steps={steps} />
      </div>
    </div>
  );
}

interface LaneProps {
  readonly selected: string;
  readonly steps: Steps;
}

function NodesLane({ selected, steps }: LaneProps): JSX.Element {
  const all = currentModel().all("node");
  const nodes = filtered(all, shownNow());
  return (
    <section class="lane lane-nodes" aria-label="Nodes">
      <header>
        <Heading count={all.length} parts={["nodes"]}>Nodes</Heading>
        <Tally of={all} label="Nodes" />
        <Shims selected={selected} steps={steps} />
      </header>
      <div class="lane-body" data-scrolls>
        <Lacking parts={["nodes", "jobs", "installers", "ledgers"]} />
        {nodes.length === 0 ? <Empty parts={["nodes"]} all={all.length} what="nodes" /> : null}
        <Virtual
          items={nodes}
          keyOf={idOf}
          label="Nodes"
          height={52}
          width={190}
          selected={selected}
          cell={(node, properties) => (
            <Cell entity={node} selected={selected} steps={steps} properties={properties}>
              <NodeLines node={node} />
            </Cell>
          )}
        />
      </div>
      <OutOfView lane={0} ids={nodes.map(idOf)} steps={steps} />
    </section>
  );
}

/** All Shims with the progress of their rollouts. */
function Shims({ selected, steps }: LaneProps): JSX.Element | null {
  const shims = currentModel().all("shim");
  const owners = wasmOwners(currentModel());
  return (
    <>
      <Lacking parts={["shims"]} />
      {shims.length === 0 ? null : (
        <ul class="shims" aria-label="Shims">
          {shims.map((shim) => {
            const id = idOf(shim);
            return (
              <li key={shim.name}>
                <button type="button" class={steps.has(id) ? "chip is-related" : "chip"} data-id={id} title={cause(shim)} aria-pressed={selected === id} onClick={() => set({ select: selected === id ? "" : id })}>
                  <Glyph health={shim.health} />
                  {shim.name}
                  <span class="secondary">
                    {shim.phase} {figure(shim.counts.Updated ?? 0)}/{figure(shim.desired)}
                    {workloadsOf(owners, id)}
                  </span>
                  <Related is={steps.has(id)} />
                </button>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}

/** The number of owners of Wasm pods of a Shim, empty if there is none. */
function workloadsOf(owners: readonly WasmOwner[], shim: string): string {
  const count = owners.filter((owner) => owner.shim === shim).length;
  return count === 0 ? "" : ` · ${counted(count, "workload")}`;
}

function NodeLines({ node }: { readonly node: Node }): JSX.Element {
  const shims = Object.entries(node.shims);
  return (
    <>
      <span class="name">{node.name}</span>
      <span class="more badges">
        {spaced(node.phase)}
        {node.kubelet_ready ? "" : ", kubelet not ready"}
        {shims.slice(0, 4).map(([name, on]) => (
          <span key={name} class="badge" title={`${name}: ${STAGE_WORDS[on.stage]}`}>
            <Glyph health={STAGE_HEALTHS[on.stage]} decorative />
            {name}
            <span class="visually-hidden"> {STAGE_WORDS[on.stage]}</span>
          </span>
        ))}
        {shims.length > 4 ? <span class="badge">+{shims.length - 4}</span> : null}
      </span>
    </>
  );
}

function HostsLane({ selected, steps }: LaneProps): JSX.Element {
  const groups = [...currentModel().all("hostgroup"), ...currentModel().all("whostgroup")];
  const hosts = [...currentModel().all("host"), ...currentModel().all("whost")];
  const rows = hostRows(currentModel(), shownNow());
  return (
    <section class="lane lane-hosts" aria-label="Host groups and hosts">
      <header>
        <Heading count={groups.length + hosts.length} parts={["groups", "pods"]}>Host groups and hosts</Heading>
        <Tally of={[...groups, ...hosts]} label="Host groups and hosts" />
      </header>
      <div class="lane-body" data-scrolls>
        <Lacking parts={["groups", "pods", ...V2_PARTS.slice(0, 4)]} />
        {rows.length === 0 ? <Empty parts={["groups", "pods"]} all={groups.length + hosts.length} what="host groups" /> : null}
        <Virtual
          items={rows}
          keyOf={(row) => row.key}
          label="Host groups and hosts"
          height={52}
          selected={selected}
          cell={(row, properties) => <Row row={row} selected={selected} steps={steps} properties={properties} />}
        />
      </div>
      <OutOfView lane={1} ids={rows.map((row) => row.key)} steps={steps} />
    </section>
  );
}

function AppsLane({ selected, steps }: LaneProps): JSX.Element {
  const applications = [...currentModel().all("application"), ...currentModel().all("workloaddeployment"), ...wasmOwners(currentModel())];
  const services = [...currentModel().all("service"), ...currentModel().all("wservice"), ...currentModel().all("artifact")];
  const rows = appRows(currentModel(), shownNow());
  return (
    <section class="lane lane-apps" aria-label="Applications and Services">
      <header>
        <Heading count={applications.length} parts={["applications"]}>Applications</Heading>
        <Tally of={[...applications, ...services]} label="Applications and Services" />
      </header>
      <div class="lane-body" data-scrolls>
        <Lacking parts={["applications", "services", "slices", ...WASM_PARTS, ...V2_PARTS.slice(4)]} />
        {rows.length === 0 ? <Empty parts={["applications", "services"]} all={applications.length + services.length} what="applications" /> : null}
        <Virtual
          items={rows}
          keyOf={(row) => row.key}
          label="Applications and Services"
          height={52}
          selected={selected}
          cell={(row, properties) => <Row row={row} selected={selected} steps={steps} properties={properties} />}
        />
      </div>
      <OutOfView lane={2} ids={rows.map((row) => row.key)} steps={steps} />
    </section>
  );
}

function Row({ row, properties, ...marks }: LaneProps & { readonly row: HostRow | AppRow; readonly properties: CellProps }): JSX.Element {
  if ("heading" in row) {
    return <h3 class="row-heading">{row.heading}</h3>;
  }
  return (
    <Cell entity={row.entity} depth={row.depth} properties={properties} {...marks}>
      <span class="name">
        {row.depth === 1 && (row.entity.kind === "host" || row.entity.kind === "whost") ? row.entity.name : called(row.entity)}
      </span>
      <span class="more">{lineOf(row.entity)}</span>
    </Cell>
  );
}

function lineOf(entity: HostGroup | Host | Application | Service | V2HostGroup | V2Host | V2App | WasmOwner): string {
  if (isWasmOwner(entity)) {
    return [
      KIND_WORDS[entity.kind],
      entity.pods === null ? "pods unknown" : `${figure(entity.pods.ready)}/${figure(Math.max(entity.desired ?? 0, entity.pods.all))} pods ready`,
      entity.nodes_all === 0 ? "" : `on ${counted(entity.nodes_all, "node")}`,
    ].filter(Boolean).join(" · ");
  }
  switch (entity.kind) {
    case "hostgroup": {
      const { ready, desired } = entity.replicas;
      return [`lattice ${entity.lattice}`, `${ready ?? 0}/${desired ?? "?"} ready`, entity.deleting ? "being deleted" : ""].filter(Boolean).join(" · ");
    }
    case "host":
      return [
        entity.node === null ? "not scheduled" : `on ${entity.node.slice("node/".length)}`,
        entity.ready ? "" : "not ready",
        entity.reported === "No" ? "heartbeat missing" : "",
        entity.applications.length === 0 ? "" : counted(entity.applications.length, "application"),
      ].filter(Boolean).join(" · ");
    case "application":
      return [entity.phase ?? "not reconciled yet", entity.deployed === null ? "" : `version ${entity.deployed}`].filter(Boolean).join(" · ");
    case "service":
      return [
        "Service",
        `${entity.endpoints.ready}/${entity.endpoints.all} endpoints`,
        [entity.addresses[0] ?? "", entity.ports.map((port) => port.port).join(",")].filter(Boolean).join(":"),
      ].filter(Boolean).join(" · ");
    case "whostgroup":
      return [
        entity.pods === null ? "pods unknown" : entity.pods.all === 0 ? "no pods in this cluster" : `${entity.pods.ready}/${entity.pods.all} pods ready`,
        counted(entity.hosts.length, "host"),
      ].join(" · ");
    case "whost":
      return [
        entity.placed === null ? "" : counted(entity.placed, "Workload"),
        entity.cpu_percent === null ? "" : `CPU ${entity.cpu_percent}%`,
        entity.memory_free === null ? "" : `${bytes(entity.memory_free)} free`,
        entity.heartbeat === false ? "no heartbeat received" : "",
      ].filter(Boolean).join(" · ");
    case "workloaddeployment":
      return `${entity.ready ?? "?"}/${entity.desired} ready on ${counted(entity.hosts.length, "host")}`;
    case "workload":
      return ["Workload", entity.phase].join(" · ");
    case "artifact":
      return [entity.published ? "published" : "not published", entity.image ?? ""].filter(Boolean).join(" · ");
    case "wservice":
      return ["Service", entity.endpoints === null ? "" : counted(entity.endpoints, "endpoint"), [entity.addresses[0] ?? "", entity.ports.map((port) => port.port).join(",")].filter(Boolean).join(":")].filter(Boolean).join(" · ");
  }
}

function Cell({
  entity, depth, selected, steps, properties, children,
}: LaneProps & { readonly entity: Entity; readonly depth?: number; readonly properties: CellProps; readonly children: JSX.Element | JSX.Element[] }): JSX.Element {
  const id = idOf(entity);
  const classes = ["cell", depth === undefined ? "" : `depth-${depth}`, `kind-${entity.kind}`, steps.has(id) ? "is-related" : ""];
  return (
    <button
      type="button"
      class={classes.filter(Boolean).join(" ")}
      data-id={id}
      title={cause(entity) || called(entity)}
      aria-pressed={selected === id}
      onClick={() => set({ select: selected === id ? "" : id })}
      {...properties}
    >
      <Glyph health={entity.health} />
      <span class="lines">{children}</span>
      <Related is={steps.has(id)} />
    </button>
  );
}

function Related({ is }: { readonly is: boolean }): JSX.Element | null {
  return is ? <span class="visually-hidden">, related to the selection</span> : null;
}

function spaced(phase: string): string {
  return phase.replace(/([a-z])([A-Z])/g, (_, one: string, other: string) => `${one} ${other.toLowerCase()}`);
}
