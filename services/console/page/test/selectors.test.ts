import assert from "node:assert/strict";
import { test } from "node:test";

import { idOf } from "../src/model/entities.ts";
import { appRows, filtered, controllerRows, matches, hostRows, isRead, milliseconds, obstacles, progress, related, rolloutRows, tally } from "../src/model/selectors.ts";
import { application, artifact, controller, deployment, group, host, node, owner, part, service, shim, v2Group, v2Host, v2Service, workload, world } from "./objects.ts";

const ALL = { text: "", health: "" };

const shop = [node("n1"), node("n2"), group("hosts"), host("hosts-1"), host("other", { group: null, node: "node/n2", applications: [] }), application("shop"), service("shop")];

test("an entity matches if it has each word, in any order and case", () => {
  assert.ok(matches(node("edge-7", { phase: "Failed" }), "FAILED edge"));
  assert.ok(!matches(node("edge-7"), "edge failed"));
  assert.ok(matches(node("n", { shims: { spin: { stage: "Updated", attempt: null, message: null } } }), "spin"));
});

test("degraded entities are first, the others keep their order", () => {
  const found = filtered([node("a"), node("b", { health: "Degraded" }), node("c")], ALL);
  assert.deepEqual(found.map((one) => one.name), ["b", "a", "c"]);
});

test("counts by health have the most urgent first, without empty ones", () => {
  assert.deepEqual(tally([node("a"), node("b", { health: "Degraded" }), node("c")]), [["Degraded", 1], ["Healthy", 2]]);
});

test("hosts follow their host group, those without one are last", () => {
  assert.deepEqual(hostRows(world(...shop), ALL).map((row) => row.key), ["hostgroup/team/hosts", "host/team/hosts-1", "#alone", "host/team/other"]);
});

test("a host group is shown for a host that matches", () => {
  assert.deepEqual(hostRows(world(...shop), { text: "hosts-1", health: "" }).map((row) => row.key), ["hostgroup/team/hosts", "host/team/hosts-1"]);
});

test("Services follow the application with their name, namespace and lattice", () => {
  const rows = appRows(world(...shop, service("far", { namespace: "elsewhere" })), ALL);
  assert.deepEqual(rows.map((row) => row.key), ["#lattice prod", "application/team/shop", "service/team/shop", "#services", "service/elsewhere/far"]);
});

test("no name of a lattice gives two rows one key", () => {
  const rows = appRows(world(application("shop", { lattice: "services" }), service("far", { namespace: "elsewhere" })), ALL);
  const keys = rows.map((row) => row.key);
  assert.equal(new Set(keys).size, keys.length, keys.join(", "));
});

test("properties that every object inherits are neither Shims nor columns", () => {
  const model = world(node("a"), controller("b", { wakes: 1 }), controller("c", { wakes: 2 }), shim("constructor"));
  assert.deepEqual(rolloutRows(model, "constructor", { text: "", stage: "" }), []);
  for (const column of ["constructor", "__proto__"]) {
    assert.deepEqual(controllerRows(model, ALL, column).map((one) => one.name), ["b", "c"]);
  }
});

test("a node leads to its hosts, and by them to groups and applications", () => {
  const found = related(world(...shop), "node/n1");
  assert.deepEqual([...found.values()].flat().map(idOf).sort(), ["application/team/shop", "host/team/hosts-1", "hostgroup/team/hosts", "service/team/shop"]);
});

test("an id of an invisible entity is not a relation", () => {
  assert.deepEqual([...related(world(host("h", { node: "node/gone", group: "hostgroup/team/gone" })), "host/team/h").keys()], []);
  assert.equal(related(world(), "node/never").size, 0);
});

const hello = [
  v2Group("default"), v2Group("edge", { hosts: ["whost/wasmcloud/h2"] }), v2Group("empty", { hosts: [], pods: null, health: "Degraded" }), v2Host("h1"),
  v2Host("h2", { group: "whostgroup/wasmcloud/edge" }), v2Host("h3", { group: null }), workload("hello-1"), deployment("hello"), v2Service("hello"),
];

test("hosts of wasmCloud v2 follow their host group, after those of lattices", () => {
  assert.deepEqual(hostRows(world(...shop, ...hello), ALL).map((row) => row.key), [
    "hostgroup/team/hosts", "host/team/hosts-1", "#alone", "host/team/other",
    "#v2 hosts", "whostgroup/wasmcloud/default", "whost/wasmcloud/h1", "whostgroup/wasmcloud/edge", "whost/wasmcloud/h2", "whostgroup/wasmcloud/empty",
    "#v2 alone", "whost/wasmcloud/h3",
  ]);
  assert.deepEqual(hostRows(world(...hello), { text: "h2", health: "" }).map((row) => row.key), [
    "#v2 hosts", "whostgroup/wasmcloud/edge", "whost/wasmcloud/h2",
  ]);
});

test("a host group of wasmCloud v2 leads to its hosts, their deployments and their Services, and back", () => {
  const model = world(node("n1"), ...hello);
  const leads = (id: string) => [...related(model, id).values()].flat().map(idOf).sort();
  assert.deepEqual(leads("whostgroup/wasmcloud/default"), ["node/n1", "whost/wasmcloud/h1", "workloaddeployment/apps/hello", "wservice/apps/hello"]);
  for (const id of ["whost/wasmcloud/h1", "workload/apps/hello-1", "workloaddeployment/apps/hello", "wservice/apps/hello", "node/n1"]) {
    assert.ok(leads(id).includes("whostgroup/wasmcloud/default"), id);
  }
  assert.deepEqual(leads("whostgroup/wasmcloud/empty"), ["node/n1"]);
});

test("a deployment of wasmCloud v2 is followed by its Service, and each object has one row", () => {
  const more = [deployment("twin"), v2Service("alone", { deployments: [] }), workload("single", { deployment: null }), artifact("code")];
  assert.deepEqual(appRows(world(...hello, ...more), ALL).map((row) => row.key), [
    "#v2", "workloaddeployment/apps/hello", "wservice/apps/hello", "workloaddeployment/apps/twin", "wservice/apps/alone", "workload/apps/single",
    "#v2 artifacts", "artifact/apps/code",
  ]);
  assert.deepEqual(appRows(world(...shop), ALL).map((row) => row.key), ["#lattice prod", "application/team/shop", "service/team/shop"]);
});

test("a host of wasmCloud v2 leads to deployments and by them to Services, and back", () => {
  const model = world(...hello);
  const leads = (id: string) => [...related(model, id).values()].flat().map(idOf).sort();
  assert.deepEqual(leads("whost/wasmcloud/h1"), ["whostgroup/wasmcloud/default", "workload/apps/hello-1", "workloaddeployment/apps/hello", "wservice/apps/hello"]);
  assert.deepEqual(leads("workloaddeployment/apps/hello"), ["whost/wasmcloud/h1", "whostgroup/wasmcloud/default", "workload/apps/hello-1", "wservice/apps/hello"]);
  assert.deepEqual(leads("wservice/apps/hello"), ["whost/wasmcloud/h1", "whostgroup/wasmcloud/default", "workload/apps/hello-1", "workloaddeployment/apps/hello"]);
});

test("a cluster without wasmCloud v2 lacks nothing, and one that is not readable does", () => {
  assert.deepEqual(obstacles(world(part("wasmcloud-v2", { defined: false })), ["wasmcloud-v2", "whosts"]), []);
  const lacking = [{ namespace: null, message: "not allowed to list hosts", do: "ask" }];
  assert.equal(obstacles(world(part("wasmcloud-v2"), part("whosts", { lacking })), ["wasmcloud-v2", "whosts"]).length, 1);
});

test("the nodes of a rollout have failed ones first", () => {
  const at = (stage: "Updated" | "Failed" | "InProgress") => ({ shims: { spin: { stage, attempt: 1, message: null } } });
  const model = world(node("a", at("Updated")), node("b", at("InProgress")), node("c", at("Failed")), node("d"));
  assert.deepEqual(rolloutRows(model, "spin", { text: "", stage: "" }).map((row) => row.node.name), ["c", "b", "a"]);
  assert.deepEqual(rolloutRows(model, "spin", { text: "", stage: "InProgress" }).map((row) => row.node.name), ["b"]);
});

test("a rollout without nodes is complete", () => {
  assert.equal(progress(shim("spin")).done, 0.25);
  assert.equal(progress(shim("spin", { counts: {} })).done, 1);
});

test("controllers by a figure have the largest first, and those without one last", () => {
  const model = world(controller("a", { wakes: null }), controller("b", { wakes: 3 }), controller("c", { wakes: 30 }));
  assert.deepEqual(controllerRows(model, ALL, "wakes").map((one) => one.name), ["c", "b", "a"]);
  assert.deepEqual(controllerRows(model, ALL, "nonsense").map((one) => one.name), ["a", "b", "c"]);
});

test("wake durations are read in the format of the status", () => {
  assert.equal(milliseconds("12.50ms"), 12.5);
  assert.equal(milliseconds("2s"), 2000);
  assert.equal(milliseconds(null), null);
  assert.equal(milliseconds("soon"), null);
});

test("a forbidden part is named and is not empty", () => {
  const lacking = [{ namespace: null, message: "not allowed to list nodes", do: "ask" }];
  const model = world(part("nodes", { lacking, synced: false }), part("shims", { defined: false, synced: false }), part("pods", { synced: false }));
  assert.deepEqual(obstacles(model, ["nodes", "shims", "pods"]).map((one) => one.message), ["not allowed to list nodes", "the CRD of shims is not installed"]);
  const twice = world(part("pods", { lacking }), part("wpods", { lacking }));
  assert.equal(obstacles(twice, ["pods", "wpods"]).length, 1);
  assert.ok(isRead(model, ["nodes", "shims"]));
  assert.ok(!isRead(model, ["pods"]));
  assert.ok(!isRead(model, ["never heard of"]));
});

const updated = { stage: "Updated", attempt: null, message: null } as const;
const wasm = [
  shim("spin"), node("n1", { shims: { spin: updated } }), node("n2", { shims: { spin: updated } }), node("n3"), owner("hello"),
  owner("every", { kind: "daemonset", nodes: ["node/n1"], nodes_all: 900 }), owner("other", { kind: "pod", shim: "shim/gone", nodes: [], nodes_all: 0 }),
];

test("owners of Wasm pods follow their Shim, one row each", () => {
  assert.deepEqual(appRows(world(...wasm), ALL).map((row) => row.key), [
    "#shim gone", "pod/shop/other", "#shim spin", "deployment/shop/hello", "daemonset/shop/every",
  ]);
  assert.deepEqual(appRows(world(...wasm), { text: "spin-v2 hello", health: "" }).map((row) => row.key), ["#shim spin", "deployment/shop/hello"]);
});

test("a Shim leads to its nodes and owners of Wasm pods, a node to the owners on it, and back", () => {
  const names = (id: string): Record<string, string[]> =>
    Object.fromEntries([...related(world(...wasm), id)].map(([how, those]) => [how, those.map(idOf)]));
  assert.deepEqual(names("shim/spin")["Nodes"], ["node/n1", "node/n2"]);
  assert.deepEqual(names("shim/spin")["Wasm pods"], ["deployment/shop/hello", "daemonset/shop/every"]);
  assert.deepEqual(names("node/n1")["Wasm pods"], ["deployment/shop/hello", "daemonset/shop/every"]);
  assert.deepEqual(names("node/n2")["Wasm pods on more nodes than are listed"], ["daemonset/shop/every"]);
  assert.deepEqual(names("node/n3"), {});
  assert.deepEqual(names("deployment/shop/hello"), { Shim: ["shim/spin"], Nodes: ["node/n1"] });
});

test("a cluster without SpinKube lacks nothing, and one that is not readable does", () => {
  assert.deepEqual(obstacles(world(part("spinapps", { defined: false })), ["wasmpods", "spinapps"]), []);
  const lacking = [{ namespace: null, message: "not allowed to list spinapps", do: null }];
  assert.equal(obstacles(world(part("spinapps", { lacking })), ["wasmpods", "spinapps"]).length, 1);
});
