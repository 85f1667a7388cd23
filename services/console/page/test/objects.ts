/* Valid entities, as the server sends them. */

import { idOf } from "../src/model/entities.ts";
import type { Application, Controller, Entity, Happening, Host, HostGroup, Node, Part, Service, Shim } from "../src/model/entities.ts";

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

export function part(name: string, more: Partial<Part> = {}): Part {
  return { kind: "part", namespace: null, name, health: "Healthy", reason: null, message: null, synced: true, defined: true, lacking: [], ...more };
}

export function happening(sequence: number, more: Partial<Happening> = {}): Happening {
  return {
    stream: "events", sequence, time: "2026-11-21T11:14:29+00:00", type: "node.ready", about: "node/n1", namespace: null, name: "n1",
    lattice: null, source: "node_watcher", trace: null, ...more,
  };
}
