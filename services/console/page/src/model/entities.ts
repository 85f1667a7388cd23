/* Types of the entities that the server sends, as docs/console/api.md describes them. */

export const HEALTHS = ["Degraded", "Missing", "Unknown", "Progressing", "Suspended", "Healthy", "Not opted in"] as const;
/** The most urgent first. */
export type Health = (typeof HEALTHS)[number];

export const KINDS = [
  "node", "shim", "hostgroup", "host", "application", "service", "controller",
  "whostgroup", "whost", "workload", "workloaddeployment", "artifact", "wservice",
  "deployment", "statefulset", "daemonset", "job", "cronjob", "spinapp", "pod",
] as const;
export type Kind = (typeof KINDS)[number];

export const STAGES = ["Updated", "InProgress", "Waiting", "Blocked", "Failed", "Removing"] as const;
export type Stage = (typeof STAGES)[number];

interface Common {
  readonly namespace: string | null;
  readonly name: string;
  readonly health: Health;
  readonly reason: string | null;
  readonly message: string | null;
}

export interface ShimOnNode {
  readonly stage: Stage;
  readonly attempt: number | null;
  readonly message: string | null;
}

export interface Node extends Common {
  readonly kind: "node";
  readonly phase: string;
  readonly opt_in: "true" | "false" | "invalid" | "unknown";
  readonly kubelet_ready: boolean;
  readonly concern: boolean;
  readonly architecture: string | null;
  readonly verified: string | null;
  readonly digest: string | null;
  readonly attempt: number | null;
  readonly shims: Readonly<Record<string, ShimOnNode>>;
}

export interface Shim extends Common {
  readonly kind: "shim";
  readonly phase: string;
  readonly advice: string | null;
  readonly handler: string | null;
  readonly generation: number;
  readonly paused: boolean;
  readonly desired: number;
  readonly counts: Readonly<Partial<Record<Stage, number>>>;
}

export interface HostGroup extends Common {
  readonly kind: "hostgroup";
  readonly lattice: string;
  readonly workload: string | null;
  readonly replicas: { readonly desired: number | null; readonly ready: number | null; readonly updated: number | null };
  readonly applications: readonly string[];
  readonly deleting: boolean;
}

export interface Host extends Common {
  readonly kind: "host";
  readonly group: string | null;
  readonly node: string | null;
  readonly lattice: string | null;
  readonly addresses: readonly string[];
  readonly ready: boolean;
  readonly reported: "Yes" | "No" | "Unknown";
  readonly host_id: string | null;
  readonly version: string | null;
  readonly applications: readonly string[];
  readonly components: number;
  readonly providers: number;
}

export interface Application extends Common {
  readonly kind: "application";
  readonly application: string;
  readonly lattice: string | null;
  readonly phase: string | null;
  readonly deployed: string | null;
}

export interface Port {
  readonly name: string | null;
  readonly port: number;
  readonly protocol: string;
  readonly node_port: number | null;
}

export interface Service extends Common {
  readonly kind: "service";
  readonly application: string;
  readonly lattice: string | null;
  readonly type: string;
  readonly addresses: readonly string[];
  readonly ports: readonly Port[];
  readonly endpoints: { readonly ready: number; readonly all: number };
  readonly hosts: readonly string[];
}

export interface Controller extends Common {
  readonly kind: "controller";
  readonly phase: string | null;
  readonly ready: boolean;
  readonly problem: string | null;
  readonly resident_bytes: number | null;
  readonly disk_bytes: number | null;
  readonly calls: number | null;
  readonly wakes: number | null;
  readonly wake_p99: string | number | null;
  readonly traps: number | null;
  readonly last_fault: { readonly kind?: string; readonly message?: string; readonly time?: string } | null;
  readonly module_sha256: string | null;
}

/** Status of each condition by its type. */
export type Conditions = Readonly<Record<string, string>>;

/** A host group of wasmCloud v2; its pods are null if they cannot be read, and do not exist outside of the cluster. */
export interface V2HostGroup extends Common {
  readonly kind: "whostgroup";
  readonly pods: { readonly all: number; readonly ready: number } | null;
  readonly hosts: readonly string[];
  readonly nodes: readonly string[];
}

/** A host of wasmCloud v2; its numbers are null without a heartbeat. */
export interface V2Host extends Common {
  readonly kind: "whost";
  readonly group: string | null;
  readonly pod: string | null;
  readonly node: string | null;
  readonly host_id: string | null;
  readonly address: string | null;
  readonly port: number | null;
  readonly environment: string | null;
  readonly heartbeat: boolean | null;
  readonly version: string | null;
  readonly system: string | null;
  readonly cpu_percent: number | null;
  readonly memory_total: number | null;
  readonly memory_free: number | null;
  readonly components: number | null;
  readonly workloads: number | null;
  readonly placed: number | null;
  readonly conditions: Conditions;
}

export interface Workload extends Common {
  readonly kind: "workload";
  readonly phase: string;
  readonly deployment: string | null;
  readonly host: string | null;
  readonly host_id: string | null;
  readonly service: string | null;
  readonly images: readonly string[];
  readonly conditions: Conditions;
}

export interface WorkloadDeployment extends Common {
  readonly kind: "workloaddeployment";
  readonly desired: number;
  readonly ready: number | null;
  readonly policy: string | null;
  readonly service: string | null;
  readonly artifacts: readonly string[];
  readonly hosts: readonly string[];
  readonly images: readonly string[];
  readonly conditions: Conditions;
}

export interface Artifact extends Common {
  readonly kind: "artifact";
  readonly image: string | null;
  readonly url: string | null;
  readonly published: boolean;
  readonly conditions: Conditions;
}

/** A Service of wasmCloud v2. */
export interface V2Service extends Common {
  readonly kind: "wservice";
  readonly type: string | null;
  readonly addresses: readonly string[];
  readonly ports: readonly { readonly name: string | null; readonly port: number }[];
  readonly endpoints: number | null;
  readonly deployments: readonly string[];
  readonly hosts: readonly string[];
}

/** Kinds of owners of Wasm pods; a pod without an owner is one, too. */
export const WASM_KINDS = ["deployment", "statefulset", "daemonset", "job", "cronjob", "spinapp", "pod"] as const;

/** An owner of Wasm pods. Its pods are null if they cannot be read; `nodes` has not the ids of all if `nodes_all` is more. */
export interface WasmOwner extends Common {
  readonly kind: (typeof WASM_KINDS)[number];
  readonly runtime_class: string;
  readonly shim: string | null;
  readonly executor: string | null;
  readonly desired: number | null;
  readonly pods: { readonly all: number; readonly ready: number } | null;
  readonly nodes: readonly string[];
  readonly nodes_all: number;
}

export interface Part extends Common {
  readonly kind: "part";
  readonly synced: boolean;
  readonly defined: boolean;
  readonly lacking: readonly { readonly namespace: string | null; readonly message: string; readonly do: string | null }[];
}

export interface ByKind {
  node: Node;
  shim: Shim;
  hostgroup: HostGroup;
  host: Host;
  application: Application;
  service: Service;
  controller: Controller;
  whostgroup: V2HostGroup;
  whost: V2Host;
  workload: Workload;
  workloaddeployment: WorkloadDeployment;
  artifact: Artifact;
  wservice: V2Service;
  deployment: WasmOwner;
  statefulset: WasmOwner;
  daemonset: WasmOwner;
  job: WasmOwner;
  cronjob: WasmOwner;
  spinapp: WasmOwner;
  pod: WasmOwner;
  part: Part;
}

export type Entity = ByKind[keyof ByKind];

/** Return whether an entity is an owner of Wasm pods, or such a pod without an owner. */
export function isWasmOwner(entity: Entity): entity is WasmOwner {
  return (WASM_KINDS as readonly string[]).includes(entity.kind);
}

export interface BusEvent {
  readonly stream: "events" | "lattice" | "dead-letters";
  readonly sequence: number;
  readonly time: string;
  readonly type: string;
  readonly about: string | null;
  readonly namespace: string | null;
  readonly name: string | null;
  readonly lattice: string | null;
  readonly source?: string | null;
  readonly trace: string | null;
  readonly data?: unknown;
  readonly cut?: boolean;
  readonly unreadable?: boolean;
}

export interface DeadLetter extends BusEvent {
  readonly trace_id: string | null;
  readonly cluster: string;
  readonly service: string;
  readonly subscription: string;
  readonly noun: string;
  readonly reason: string;
  readonly error: string;
  readonly deliveries: number | null;
  readonly subject: string;
  readonly size: number;
  readonly truncated: boolean;
  readonly obstacle: string;
}

export interface ExplainLine {
  readonly about: string;
  readonly ok: boolean | null;
  readonly text: string;
  readonly do: string | null;
}

export interface Explanation {
  readonly ok: boolean;
  readonly health: Health;
  readonly reason: string | null;
  readonly subject: string;
  readonly cause: string | null;
  readonly do: string | null;
  readonly headline: string;
  readonly lines: readonly ExplainLine[];
}

export interface Span {
  readonly depth: number;
  readonly span: string;
  readonly parent: string | null;
  readonly name: string;
  readonly service: string;
  readonly start: number;
  readonly end: number;
  readonly error: string | null;
  readonly links: readonly { readonly trace: string; readonly span: string }[];
  readonly attributes: Readonly<Record<string, unknown>>;
}

export interface Trace {
  readonly trace: string;
  readonly whole: boolean;
  readonly cut: boolean;
  readonly link: string | null;
  readonly spans: readonly Span[];
}

export interface Session {
  readonly user: string;
  readonly groups: readonly string[];
  readonly auth: "token" | "proxy";
  readonly expires_in: number | null;
  readonly version: string;
  readonly cluster: string | null;
  readonly traces: boolean;
  readonly jaeger: string | null;
  readonly explained: readonly string[];
  readonly namespaces_most: number;
  readonly page_most: number;
}

/** Return the id of an entity. */
export function idOf(entity: Entity): string {
  return entity.namespace === null ? `${entity.kind}/${entity.name}` : `${entity.kind}/${entity.namespace}/${entity.name}`;
}
