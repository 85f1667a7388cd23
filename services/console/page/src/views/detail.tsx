/* Details of one object: health, cause, related resources, fields.

   In: an id. Out: a panel. Invariant: the cause is read again when the health changes, with the time of the last read. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { currentModel, place, session, set } from "../live/store.ts";
import { idOf, isWasmOwner } from "../model/entities.ts";
import type { Conditions, Entity, Explanation } from "../model/entities.ts";
import { viewed } from "../model/place.ts";
import { own, related } from "../model/selectors.ts";
import { bytes, cause, dated, figure, HEALTH_CLASSES, KIND_WORDS, STAGE_WORDS } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { EntityLink, PlaceLink, Problem } from "../ui/parts.tsx";
import { Panel } from "../ui/panel.tsx";
import { Message } from "../ui/message.tsx";

const SHOWN = 12;
const SETTLE_MS = 700;

export function Detail({ id }: { readonly id: string }): JSX.Element {
  const entity = currentModel().get(id);
  const [kind, name] = titleOf(id);
  return (
    <Panel title={name} kind={kind} close={() => set({ select: "" })} key={id}>
      {entity === undefined ? (
        <p class="empty">Not found, or no permission to read it.</p>
      ) : (
        <p class={`health-line is-${HEALTH_CLASSES[entity.health]}`}>
          <Glyph health={entity.health} decorative /> <strong>{entity.health}</strong>
          {"phase" in entity && entity.phase !== null ? ` · ${entity.phase}` : ""}
          {repeats(entity) ? null : (
            <>
              {" – "}
              <Message text={cause(entity)} />
            </>
          )}
        </p>
      )}
      <Cause id={id} entity={entity} />
      <Related id={id} />
      <p class="links">
        <PlaceLink to={viewed(place.value, "events", { object: id })}>Events</PlaceLink>
        <PlaceLink to={viewed(place.value, "dead-letters", { object: id })}>Dead letters</PlaceLink>
        {entity?.kind === "shim" ? <PlaceLink to={viewed(place.value, "rollouts", { shim: entity.name })}>Rollout</PlaceLink> : null}
      </p>
      {entity === undefined ? null : <Fields entity={entity} />}
    </Panel>
  );
}

/** Return whether the cause is empty, or only the health or the phase. */
function repeats(entity: Entity): boolean {
  return ["", entity.health, "phase" in entity ? entity.phase : ""].includes(cause(entity));
}

function titleOf(id: string): [string, string] {
  const [kind = "", ...rest] = id.split("/");
  return [own<string>(KIND_WORDS, kind) ?? kind, rest.join("/")];
}

/** Return the id whose explanation is shown; a host is explained by its host group, a Service of wasmCloud v2 as a Service. */
function explainedBy(id: string, entity: Entity | undefined): string | null {
  const found = entity?.kind === "host" ? entity.group : id.replace(/^wservice\//, "service/");
  // A typed `..` would change the address.
  const [, kind = ""] = /^([a-z]+)(\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?){1,2}$/.exec(found ?? "") ?? [];
  return (session.value?.explained ?? []).includes(kind) ? found : null;
}

function Cause({ id, entity }: { readonly id: string; readonly entity: Entity | undefined }): JSX.Element | null {
  const subject = explainedBy(id, entity);
  const [read, put] = useState<{ readonly page?: Explanation; readonly error?: Refused; readonly at: number }>({ at: 0 });
  const [attempt, setAttempt] = useState(0);
  const first = useRef(true);
  const health = entity === undefined ? "" : `${entity.health} ${cause(entity)}`;
  useEffect(() => {
    if (subject === null) {
      return undefined;
    }
    const abort = new AbortController();
    // Wait until an object that changes often is stable.
    const timer = setTimeout(
      () => {
        first.current = false;
        get<Explanation>(`/api/explain/${subject.split("/").map(encodeURIComponent).join("/")}`, abort.signal).then(
          (page) => put({ page, at: Date.now() }),
          (error: unknown) => abort.signal.aborted || put({ error: asRefused(error), at: Date.now() }),
        );
      },
      first.current ? 0 : SETTLE_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [subject, health, attempt]);
  if (subject === null) {
    return null;
  }
  return (
    <section class="cause" aria-busy={read.at === 0}>
      <h3>
        Cause{" "}
        <button type="button" class="text-button" onClick={() => setAttempt(attempt + 1)}>
          Refresh
        </button>
      </h3>
      {read.error === undefined ? null : <Problem error={read.error} />}
      {read.page === undefined ? (read.error === undefined ? <p class="empty">Loading …</p> : null) : <Reasons page={read.page} at={read.at} />}
    </section>
  );
}

export function Reasons({ page, at }: { readonly page: Explanation; readonly at?: number }): JSX.Element {
  return (
    <>
      <p class="headline">
        <Message text={page.headline} />
      </p>
      <ol class="reasons">
        {page.lines.map((line, index) => (
          <li key={index}>
            {line.ok === null ? <span class="glyph dot" aria-hidden="true" /> : <Glyph health={line.ok ? "Healthy" : "Degraded"} />}
            <span>
              <strong>{line.about}</strong> <Message text={line.text} />
              {line.do === null ? null : <span class="remedy"><Message text={line.do} /></span>}
            </span>
          </li>
        ))}
      </ol>
      {at === undefined ? null : <p class="secondary">Last read: {dated(at)}</p>}
    </>
  );
}

function Related({ id }: { readonly id: string }): JSX.Element | null {
  const found = [...related(currentModel(), id)];
  return found.length === 0 ? null : (
    <section>
      <h3>Related resources</h3>
      {found.map(([how, entities]) => (
        <div key={how} class="related">
          <h4>
            {how} <span class="count">{figure(entities.length)}</span>
          </h4>
          <ul>
            {entities.slice(0, SHOWN).map((one) => (
              <li key={idOf(one)}>
                <EntityLink entity={one} />
              </li>
            ))}
          </ul>
          {entities.length > SHOWN ? <p class="secondary">and {figure(entities.length - SHOWN)} more</p> : null}
        </div>
      ))}
    </section>
  );
}

type Row = readonly [label: string, value: string | number | null];

/** Return the fields of an object that are meant for people, without internal ones. */
function rowsOf(entity: Entity): readonly Row[] {
  if (isWasmOwner(entity)) {
    return [
      ["RuntimeClass", entity.runtime_class],
      ["SpinAppExecutor", entity.executor],
      ["Ready pods", entity.pods === null ? "unknown" : `${figure(entity.pods.ready)} of ${figure(entity.pods.all)}`],
      ["Desired pods", entity.desired],
      ["Nodes with its pods", entity.nodes_all],
    ];
  }
  switch (entity.kind) {
    case "node":
      return [
        ["Opt-in", entity.opt_in],
        ["Kubelet", entity.kubelet_ready ? "ready" : "not ready"],
        ["Architecture", entity.architecture],
        ["Verified by", entity.verified],
        ["Attempt", entity.attempt],
        ["Shims", Object.entries(entity.shims).map(([name, on]) => `${name}: ${STAGE_WORDS[on.stage]}`).join(", ")],
      ];
    case "shim":
      return [["Runtime handler", entity.handler], ["Nodes", entity.desired], ["Updated nodes", entity.counts.Updated ?? 0], ["Failed nodes", entity.counts.Failed ?? 0], ["Generation", entity.generation]];
    case "hostgroup":
      return [
        ["Lattice", entity.lattice],
        ["Workload", entity.workload],
        ["Ready hosts", `${entity.replicas.ready ?? 0} of ${entity.replicas.desired ?? 0}`],
        ["Updated hosts", entity.replicas.updated],
        ["Applications", entity.applications.join(", ")],
      ];
    case "host":
      return [
        ["Lattice", entity.lattice],
        ["Addresses", entity.addresses.join(", ")],
        ["Pod", entity.ready ? "ready" : "not ready"],
        ["Reported by the lattice", entity.reported.toLowerCase()],
        ["Host ID", entity.host_id],
        ["Version", entity.version],
        ["Components", entity.components],
        ["Providers", entity.providers],
        ["Applications", entity.applications.join(", ")],
      ];
    case "application":
      return [["Name in wadm", entity.application], ["Lattice", entity.lattice], ["Deployed version", entity.deployed]];
    case "service":
      return [
        ["Application", entity.application],
        ["Lattice", entity.lattice],
        ["Type", entity.type],
        ["Addresses", entity.addresses.join(", ")],
        ["Ports", entity.ports.map((port) => [port.name, `${port.port}/${port.protocol}`, port.node_port === null ? "" : `node port ${port.node_port}`].filter(Boolean).join(" ")).join(", ")],
        ["Ready endpoints", `${entity.endpoints.ready} of ${entity.endpoints.all}`],
      ];
    case "controller":
      return [
        ["Resident memory", bytes(entity.resident_bytes)],
        ["Snapshot on disk", bytes(entity.disk_bytes)],
        ["Calls", entity.calls],
        ["Wakes", entity.wakes],
        ["Wake duration (p99)", entity.wake_p99],
        ["Traps", entity.traps],
        ["Last fault", entity.last_fault === null ? null : [entity.last_fault.kind, entity.last_fault.message].filter(Boolean).join(": ")],
        ["Last fault at", entity.last_fault?.time === undefined ? null : dated(entity.last_fault.time)],
        ["Module SHA-256", entity.module_sha256],
      ];
    case "whostgroup":
      return [
        ["Hosts", entity.hosts.length],
        ["Ready pods", entity.pods === null ? "unknown" : `${entity.pods.ready} of ${entity.pods.all}`],
      ];
    case "whost":
      return [
        ["Pod", entity.pod],
        ["Host ID", entity.host_id],
        ["Address", entity.address === null ? null : `${entity.address}:${entity.port ?? "?"}`],
        ["Environment", entity.environment],
        ["Version", entity.version],
        ["System", entity.system],
        ["CPU", entity.cpu_percent === null ? "unknown" : `${entity.cpu_percent}%`],
        ["Memory", entity.memory_total === null ? "unknown" : `${bytes(entity.memory_free)} of ${bytes(entity.memory_total)} free`],
        ["Running components", entity.components ?? "unknown"],
        ["Running workloads", entity.workloads ?? "unknown"],
        ["Placed Workloads", entity.placed ?? "unknown"],
        conditions(entity.conditions),
      ];
    case "workload":
      return [["Host ID", entity.host_id], ["Images", entity.images.join(", ")], conditions(entity.conditions)];
    case "workloaddeployment":
      return [
        ["Ready Workloads", `${entity.ready ?? "unknown"} of ${entity.desired}`],
        ["Policy", entity.policy],
        ["Images", entity.images.join(", ")],
        conditions(entity.conditions),
      ];
    case "artifact":
      return [["Image", entity.image], ["Published image", entity.url], conditions(entity.conditions)];
    case "wservice":
      return [
        ["Type", entity.type],
        ["Addresses", entity.addresses.join(", ")],
        ["Ports", entity.ports.map((port) => [port.name, port.port].filter((one) => one !== null).join(" ")).join(", ")],
        ["Endpoints", entity.endpoints ?? "unknown"],
      ];
    case "part":
      return [];
  }
}

function conditions(found: Conditions): Row {
  return ["Conditions", Object.entries(found).map(([type, status]) => `${type}: ${status}`).join(", ")];
}

function Fields({ entity }: { readonly entity: Entity }): JSX.Element {
  return (
    <section>
      <h3>Details</h3>
      <dl class="fields">
        {rowsOf(entity)
          .filter(([, value]) => value !== null && value !== "")
          .map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </section>
  );
}
