import assert from "node:assert/strict";
import { test } from "node:test";

import { Model } from "../src/model/model.ts";
import { entities, node } from "./objects.ts";

function filled(): Model {
  const model = new Model();
  model.hello({ epoch: "a", full: true });
  model.delta({ revision: 1, set: entities(node("n10"), node("n2"), node("n1")), deleted: [], more: false }, "a.1");
  return model;
}

test("names are sorted in natural order", () => {
  assert.deepEqual(filled().all("node").map((one) => one.name), ["n1", "n2", "n10"]);
});

test("a revision in several messages is applied completely or not at all", () => {
  const model = filled();
  assert.equal(model.delta({ revision: 2, set: entities(node("n3")), deleted: [], more: true }, ""), false);
  assert.equal(model.all("node").length, 3);
  assert.equal(model.delta({ revision: 2, set: {}, deleted: ["node/n1"], more: false }, "a.2"), true);
  assert.deepEqual(model.all("node").map((one) => one.name), ["n2", "n3", "n10"]);
  assert.equal(model.mark, "a.2");
});

test("an incomplete revision is dropped with the next stream", () => {
  const model = filled();
  model.delta({ revision: 2, set: entities(node("n3")), deleted: [], more: true }, "");
  model.hello({ epoch: "a", full: false });
  model.delta({ revision: 3, set: {}, deleted: [], more: false }, "a.3");
  assert.equal(model.get("node/n3"), undefined);
});

test("a full state replaces the former one when it is complete", () => {
  const model = filled();
  model.hello({ epoch: "b", full: true });
  assert.equal(model.all("node").length, 3);
  assert.equal(model.mark, "", "the next request is for the full state");
  model.delta({ revision: 1, set: entities(node("other")), deleted: [], more: false }, "b.1");
  assert.deepEqual(model.all("node").map((one) => one.name), ["other"]);
});

test("the deletion of an unknown entity has no effect", () => {
  const model = filled();
  model.delta({ revision: 2, set: {}, deleted: ["node/never", "shim/neither"], more: false }, "a.2");
  assert.equal(model.all("node").length, 3);
});

test("a change appears in lists that were read before", () => {
  const model = filled();
  const before = model.all("node");
  model.delta({ revision: 2, set: entities(node("n2", { health: "Degraded" })), deleted: [], more: false }, "a.2");
  assert.notEqual(model.all("node"), before);
  assert.equal(model.all("node")[1]?.health, "Degraded");
});

test("a list is the same one while nothing of its kind changed", () => {
  const model = filled();
  const before = model.all("node");
  model.delta({ revision: 2, set: {}, deleted: [], more: false }, "a.2");
  assert.equal(model.all("node"), before);
});
