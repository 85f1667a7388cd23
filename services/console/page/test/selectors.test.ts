import assert from "node:assert/strict";
import { test } from "node:test";

import { idOf } from "../src/model/entities.ts";
import { appRows, chosen, controllerRows, fits, hostRows, isRead, milliseconds, obstacles, progress, related, rolloutRows, tally } from "../src/model/selectors.ts";
import { application, artifact, controller, deployment, group, host, node, owner, part, service, shim, v2Group, v2Host, v2Service, workload, world } from "./objects.ts";

const ALL = { text: "", health: "" };

const shop = [node("n1"), node("n2"), group("hosts"), host("hosts-1"), host("other", { group: null, node: "node/n2", applications: [] }), application("shop"), service("shop")];

test("each word of a search has to be there, in whatever order and case", () => {
  assert.ok(fits(node("edge-7", { phase: "Failed" }), "FAILED edge"));
  assert.ok(!fits(node("edge-7"), "edge failed"));
  assert.ok(fits(node("n", { shims: { spin: { stage: "Updated", attempt: null, message: null } } }), "spin"));
});

test("what is troubled stands first, the rest as it was", () => {
  const found = chosen([node("a"), node("b", { health: "Degraded" }), node("c")], ALL);
  assert.deepEqual(found.map((one) => one.name), ["b", "a", "c"]);
});

test("counts by state have the most urgent first, and none that there is not", () => {
  assert.deepEqual(tally([node("a"), node("b", { health: "Degraded" }), node("c")]), [["Degraded", 1], ["Healthy", 2]]);
});

test("hosts stand behind their group, those of none at the end", () => {
  assert.deepEqual(hostRows(world(...shop), ALL).map((row) => row.key), ["hostgroup/team/hosts", "host/team/hosts-1", "#alone", "host/team/other"]);
});

test("a group is there for a host that fits", () => {
  assert.deepEqual(hostRows(world(...shop), { text: "hosts-1", health: "" }).map((row) => row.key), ["hostgroup/team/hosts", "host/team/hosts-1"]);
});

test("Services stand behind the application of their name, namespace and lattice alone", () => {
  const rows = appRows(world(...shop, service("far", { namespace: "elsewhere" })), ALL);
  assert.deepEqual(rows.map((row) => row.key), ["#lattice prod", "application/team/shop", "service/team/shop", "#services", "service/elsewhere/far"]);
});

test("no name of a lattice makes two rows one", () => {
  const rows = appRows(world(application("shop", { lattice: "services" }), service("far", { namespace: "elsewhere" })), ALL);
  const keys = rows.map((row) => row.key);
  assert.equal(new Set(keys).size, keys.length, keys.join(", "));
});

test("what JavaScript has by itself is no Shim of a node, and no column", () => {
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

test("what leads to what is not seen leads nowhere", () => {
  assert.deepEqual([...related(world(host("h", { node: "node/gone", group: "hostgroup/team/gone" })), "host/team/h").keys()], []);
  assert.equal(related(world(), "node/never").size, 0);
});

const hello = [
  v2Group("default"), v2Group("edge", { hosts: ["whost/wasmcloud/h2"] }), v2Group("empty", { hosts: [], pods: null, health: "Degraded" }), v2Host("h1"),
  v2Host("h2", { group: "whostgroup/wasmcloud/edge" }), v2Host("h3", { group: null }), workload("hello-1"), deployment("hello"), v2Service("hello"),
];

test("hosts of wasmCloud v2 stand below their host group, after those of lattices", () => {
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

test("a rollout has the nodes first that need somebody's eye", () => {
  const at = (stage: "Updated" | "Failed" | "InProgress") => ({ shims: { spin: { stage, attempt: 1, message: null } } });
  const model = world(node("a", at("Updated")), node("b", at("InProgress")), node("c", at("Failed")), node("d"));
  assert.deepEqual(rolloutRows(model, "spin", { text: "", stage: "" }).map((row) => row.node.name), ["c", "b", "a"]);
  assert.deepEqual(rolloutRows(model, "spin", { text: "", stage: "InProgress" }).map((row) => row.node.name), ["b"]);
});

test("a rollout of no nodes is done", () => {
  assert.equal(progress(shim("spin")).done, 0.25);
  assert.equal(progress(shim("spin", { counts: {} })).done, 1);
});

test("controllers by a figure have the largest first, and those without one last", () => {
  const model = world(controller("a", { wakes: null }), controller("b", { wakes: 3 }), controller("c", { wakes: 30 }));
  assert.deepEqual(controllerRows(model, ALL, "wakes").map((one) => one.name), ["c", "b", "a"]);
  assert.deepEqual(controllerRows(model, ALL, "nonsense").map((one) => one.name), ["a", "b", "c"]);
});

test("times to wake are read as the status writes them", () => {
  assert.equal(milliseconds("12.50ms"), 12.5);
  assert.equal(milliseconds("2s"), 2000);
  assert.equal(milliseconds(null), null);
  assert.equal(milliseconds("soon"), null);
});

test("what is not allowed is said, and is not taken for empty", () => {
  const lacking = [{ namespace: null, message: "not allowed to list nodes", do: "ask" }];
  const model = world(part("nodes", { lacking, synced: false }), part("shims", { defined: false, synced: false }), part("pods", { synced: false }));
  assert.deepEqual(obstacles(model, ["nodes", "shims", "pods"]).map((one) => one.message), ["not allowed to list nodes", "the CRD of shims is not installed"]);
  assert.ok(isRead(model, ["nodes", "shims"]));
  assert.ok(!isRead(model, ["pods"]));
  assert.ok(!isRead(model, ["never heard of"]));
});

const updated = { stage: "Updated", attempt: null, message: null } as const;
const wasm = [
  shim("spin"), node("n1", { shims: { spin: updated } }), node("n2", { shims: { spin: updated } }), node("n3"), owner("hello"),
  owner("every", { kind: "daemonset", nodes: ["node/n1"], nodes_all: 900 }), owner("other", { kind: "pod", shim: "shim/gone", nodes: [], nodes_all: 0 }),
];

test("owners of Wasm pods stand below their Shim, one row each", () => {
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
