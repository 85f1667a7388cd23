/* Valid entities, as the server sends them. */

import { idOf } from "../src/model/entities.ts";
import type {
  Application, Artifact, Controller, Entity, BusEvent, Host, HostGroup, Node, Part, Service, Shim, V2Host, V2HostGroup, V2Service, WasmOwner, Workload, WorkloadDeployment,
} from "../src/model/entities.ts";
import { Model } from "../src/model/model.ts";

/** Return a model of these entities. */
export function world(...those: Entity[]): Model {
  const model = new Model();
  model.hello({ epoch: "a", full: true });
  model.delta({ revision: 1, set: entities(...those), deleted: [], more: false }, "a.1");
  return model;
}

export function entities(...those: readonly Entity[]): Record<string, Entity> {
  return Object.fromEntries(those.map((one) => [idOf(one), one]));
}

export function node(name: string, more: Partial<Node> = {}): Node {
  return {
    kind: "node", namespace: null, name, health: "Healthy", reason: null, message: null, phase: "Ready", opt_in: "true", kubelet_ready: true, concern: true,
    architecture: "amd64", verified: "canary", digest: null, attempt: null, shims: {}, ...more,
  };
}

export function shim(name: string, more: Partial<Shim> = {}): Shim {
  return {
    kind: "shim", namespace: null, name, health: "Progressing", reason: null, message: null, phase: "Progressing", advice: null, handler: name, generation: 1,
    paused: false, desired: 4, counts: { Updated: 1, InProgress: 2, Waiting: 1 }, ...more,
  };
}

export function group(name: string, more: Partial<HostGroup> = {}): HostGroup {
  return {
    kind: "hostgroup", namespace: "team", name, health: "Healthy", reason: null, message: null, lattice: "prod", workload: "Deployment",
    replicas: { desired: 1, ready: 1, updated: 1 }, applications: ["shop"], deleting: false, ...more,
  };
}

export function host(name: string, more: Partial<Host> = {}): Host {
  return {
    kind: "host", namespace: "team", name, health: "Healthy", reason: null, message: null, group: "hostgroup/team/hosts", node: "node/n1", lattice: "prod",
    addresses: [], ready: true, reported: "Yes", host_id: null, version: null, applications: ["shop"], components: 1, providers: 1, ...more,
  };
}

export function application(name: string, more: Partial<Application> = {}): Application {
  return {
    kind: "application", namespace: "team", name, health: "Healthy", reason: null, message: null, application: name, lattice: "prod", phase: "Deployed",
    deployed: "v1", ...more,
  };
}

export function service(name: string, more: Partial<Service> = {}): Service {
  return {
    kind: "service", namespace: "team", name, health: "Healthy", reason: null, message: null, application: "shop", lattice: "prod", type: "ClusterIP",
    addresses: [], ports: [], endpoints: { ready: 1, all: 1 }, hosts: ["host/team/hosts-1"], ...more,
  };
}

export function controller(name: string, more: Partial<Controller> = {}): Controller {
  return {
    kind: "controller", namespace: "team", name, health: "Healthy", reason: null, message: null, phase: "Suspended", ready: true, problem: null,
    resident_bytes: 0, disk_bytes: 0, calls: 0, wakes: 0, wake_p99: null, traps: 0, last_fault: null, module_sha256: null, ...more,
  };
}

export function v2Group(name: string, more: Partial<V2HostGroup> = {}): V2HostGroup {
  return {
    kind: "whostgroup", namespace: "wasmcloud", name, health: "Healthy", reason: null, message: null, pods: { all: 1, ready: 1 }, hosts: ["whost/wasmcloud/h1"],
    nodes: ["node/n1"], ...more,
  };
}

export function v2Host(name: string, more: Partial<V2Host> = {}): V2Host {
  return {
    kind: "whost", namespace: "wasmcloud", name, health: "Healthy", reason: null, message: null, group: "whostgroup/wasmcloud/default", pod: `wasmcloud/pod-${name}`,
    node: "node/n1", host_id: name, address: "10.0.0.1", port: 80,
    environment: null, heartbeat: null, version: null, system: null, cpu_percent: null, memory_total: null, memory_free: null, components: null,
    workloads: null, placed: 1, conditions: { Reporting: "True", Ready: "True" }, ...more,
  };
}

export function workload(name: string, more: Partial<Workload> = {}): Workload {
  return {
    kind: "workload", namespace: "apps", name, health: "Healthy", reason: null, message: null, phase: "Ready", deployment: "workloaddeployment/apps/hello",
    host: "whost/wasmcloud/h1", host_id: "h1", service: "wservice/apps/hello", images: ["hello:1"], conditions: {}, ...more,
  };
}

export function deployment(name: string, more: Partial<WorkloadDeployment> = {}): WorkloadDeployment {
  return {
    kind: "workloaddeployment", namespace: "apps", name, health: "Healthy", reason: null, message: null, desired: 1, ready: 1, policy: null,
    service: "wservice/apps/hello", artifacts: [], hosts: ["whost/wasmcloud/h1"], images: ["hello:1"], conditions: {}, ...more,
  };
}

export function artifact(name: string, more: Partial<Artifact> = {}): Artifact {
  return { kind: "artifact", namespace: "apps", name, health: "Healthy", reason: null, message: null, image: null, url: null, published: true, conditions: {}, ...more };
}

export function v2Service(name: string, more: Partial<V2Service> = {}): V2Service {
  return {
    kind: "wservice", namespace: "apps", name, health: "Healthy", reason: null, message: null, type: "ClusterIP", addresses: [], ports: [], endpoints: 1,
    deployments: ["workloaddeployment/apps/hello"], hosts: ["whost/wasmcloud/h1"], ...more,
  };
}

export function owner(name: string, more: Partial<WasmOwner> = {}): WasmOwner {
  return {
    kind: "deployment", namespace: "shop", name, health: "Healthy", reason: null, message: null, runtime_class: "spin-v2", shim: "shim/spin",
    executor: null, desired: 2, pods: { all: 2, ready: 2 }, nodes: ["node/n1"], nodes_all: 1, ...more,
  };
}

export function part(name: string, more: Partial<Part> = {}): Part {
  return { kind: "part", namespace: null, name, health: "Healthy", reason: null, message: null, synced: true, defined: true, lacking: [], ...more };
}

export function busEvent(sequence: number, more: Partial<BusEvent> = {}): BusEvent {
  return {
    stream: "events", sequence, time: "2026-11-21T11:14:29+00:00", type: "node.ready", about: "node/n1", namespace: null, name: "n1",
    lattice: null, source: "node_watcher", trace: null, ...more,
  };
}
