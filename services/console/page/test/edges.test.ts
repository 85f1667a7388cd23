import assert from "node:assert/strict";
import { test } from "node:test";

import { origins, outOfView, route, steps } from "../src/model/edges.ts";
import type { Box } from "../src/model/edges.ts";
import { application, artifact, deployment, group, host, node, owner, service, shim, v2Group, v2Host, v2Service, world } from "./objects.ts";

const updated = { stage: "Updated", attempt: null, message: null } as const;
const wasm = [
  shim("spin"), node("n1", { shims: { spin: updated } }), node("n2", { shims: { spin: updated } }), owner("hello", { nodes: ["node/n1", "node/n2"], nodes_all: 2 }),
  owner("pending", { nodes: [], nodes_all: 0 }), owner("wide", { kind: "daemonset", nodes: ["node/n2"], nodes_all: 900 }),
];
const v1 = world(node("n1"), group("hosts"), host("hosts-1"), application("shop"), service("shop"));
const v2 = world(
  node("n1"), v2Group("default"), v2Host("h1"), deployment("hello", { artifacts: ["artifact/apps/code"] }), v2Service("hello"), artifact("code"),
  deployment("other", { service: null }),
);

const of = (...those: Parameters<typeof steps>): Record<string, readonly string[]> => Object.fromEntries([...steps(...those)].sort());

test("a Shim is connected to its nodes, and a node to the Wasm pods on it", () => {
  assert.deepEqual(of(world(...wasm), "shim/spin"), {
    "daemonset/shop/wide": ["node/n2"],
    "deployment/shop/hello": ["node/n1", "node/n2"],
    "deployment/shop/pending": ["shim/spin"],
    "node/n1": ["shim/spin"],
    "node/n2": ["shim/spin"],
  });
});

test("Wasm pods are connected to their Shim by their nodes, or directly without a node", () => {
  assert.deepEqual(of(world(...wasm), "deployment/shop/hello"), {
    "node/n1": ["deployment/shop/hello"], "node/n2": ["deployment/shop/hello"], "shim/spin": ["node/n1", "node/n2"],
  });
  assert.deepEqual(of(world(...wasm), "deployment/shop/pending"), { "shim/spin": ["deployment/shop/pending"] });
});

test("a relation that no field names is a direct connection", () => {
  assert.deepEqual(of(world(...wasm), "node/n1")["daemonset/shop/wide"], ["node/n1"]);
});

test("a host group is connected to its hosts, their applications and the Services of those", () => {
  assert.deepEqual(of(v1, "hostgroup/team/hosts"), {
    "application/team/shop": ["host/team/hosts-1"],
    "host/team/hosts-1": ["hostgroup/team/hosts"],
    "node/n1": ["host/team/hosts-1"],
    "service/team/shop": ["application/team/shop"],
  });
  assert.deepEqual(of(v1, "service/team/shop")["hostgroup/team/hosts"], ["host/team/hosts-1"]);
  assert.deepEqual(of(v1, "node/n1")["service/team/shop"], ["application/team/shop"]);
});

test("a host group of wasmCloud v2 is connected to its hosts, their WorkloadDeployments and the Services of those", () => {
  assert.deepEqual(of(v2, "whostgroup/wasmcloud/default"), {
    "node/n1": ["whost/wasmcloud/h1"],
    "whost/wasmcloud/h1": ["whostgroup/wasmcloud/default"],
    "workloaddeployment/apps/hello": ["whost/wasmcloud/h1"],
    "workloaddeployment/apps/other": ["whost/wasmcloud/h1"],
    "wservice/apps/hello": ["workloaddeployment/apps/hello"],
  });
  assert.deepEqual(of(v2, "node/n1")["wservice/apps/hello"], ["workloaddeployment/apps/hello"]);
  assert.deepEqual(of(v2, "artifact/apps/code"), { "workloaddeployment/apps/hello": ["artifact/apps/code"] });
});

test("a name that every object inherits is not a connection", () => {
  const model = world(node("n1"), application("constructor"), host("h", { applications: ["constructor", "__proto__"], group: null }));
  assert.deepEqual(of(model, "host/team/h"), { "application/team/constructor": ["host/team/h"], "node/n1": ["host/team/h"] });
  assert.equal(steps(model, "").size, 0);
  assert.equal(steps(model, "node/missing").size, 0);
});

test("a line begins at the nearest objects in view", () => {
  const those = steps(world(...wasm), "shim/spin");
  const seen = (...ids: string[]) => origins(those, "deployment/shop/hello", (id) => ids.includes(id));
  assert.deepEqual(seen("shim/spin", "node/n2"), { from: ["node/n2"], direct: true });
  assert.deepEqual(seen("shim/spin"), { from: ["shim/spin"], direct: false });
  assert.deepEqual(seen(), { from: [], direct: false });
  assert.deepEqual(origins(those, "shim/spin", () => true).from, [], "no line leads to the selection");
});

const box = (more: Partial<Box>): Box => ({ left: 10, right: 110, top: 100, bottom: 150, lane: 0, laneRight: 230, listTop: 90, ...more });

test("a line from a Shim reaches a node along the space between columns", () => {
  const chip = box({ top: 40, bottom: 60, right: 50 });
  assert.equal(route(chip, box({ left: 114, right: 214 })), "M30 60V85H112V125H114");
  assert.equal(route(box({ left: 114, right: 214 }), chip), "M30 60V85H112V125H114");
});

test("a line within a list runs along its left margin", () => {
  assert.equal(route(box({ left: 28, top: 200, bottom: 250 }), box({})), "M10 125H5V225H28");
});

test("a line to another lane leaves below the row unless no cell is in its way", () => {
  const other = box({ left: 250, right: 400, lane: 1, laneRight: 410, top: 300, bottom: 350 });
  assert.equal(route(box({}), other), "M110 125h2V152H230C240 152 240 325 250 325");
  assert.equal(route(box({ left: 114, right: 214 }), other), "M214 125H230C240 125 240 325 250 325");
});

test("related rows above and below the view are counted, others are not", () => {
  const those = steps(world(...wasm), "shim/spin");
  assert.deepEqual(outOfView(["node/n1", "node/n3", "node/n2"], those, 1, 1), { all: 2, above: 1, below: 1 });
  assert.deepEqual(outOfView(["node/n1", "node/n3", "node/n2"], those, 0, 2), { all: 2, above: 0, below: 0 });
  assert.deepEqual(outOfView(["node/n3", "node/n1"], those, Infinity, -Infinity), { all: 1, above: 0, below: 1 });
});
