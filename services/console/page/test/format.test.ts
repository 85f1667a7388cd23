import assert from "node:assert/strict";
import { test } from "node:test";

import { eventsQuery, storedEventsQuery, changes, mergeEvents, EVENTS_KEPT } from "../src/model/events.ts";
import { addressOf, changed, leadingTo, placeOf, viewed } from "../src/model/place.ts";
import { Reader } from "../src/model/sse.ts";
import { waterfall } from "../src/model/waterfall.ts";
import { age, bytes, cause, clock, duration, outcome } from "../src/model/format.ts";
import { step } from "../src/ui/step.ts";
import { busEvent } from "./objects.ts";

test("a place is restored from its address", () => {
  const place = placeOf("/events", "?object=node/n1.example&streams=events,dead-letters&q=a%20b");
  assert.equal(addressOf(place), "/events?object=node/n1.example&q=a+b&streams=events,dead-letters");
  assert.deepEqual(placeOf("/events", addressOf(place).slice("/events".length)), place);
});

test("an unknown path is the map, and names are in the query", () => {
  assert.equal(placeOf("/nothing/at/all", "").view, "map");
  assert.equal(addressOf(leadingTo(placeOf("/", ""), "node/n1.example")), "/?select=node/n1.example");
});

test("another view keeps only the selected namespaces", () => {
  const place = changed(placeOf("/", "?namespaces=a,b&q=x&select=node/n"), { q: "" });
  assert.equal(addressOf(viewed(place, "dead-letters")), "/dead-letters?namespaces=a,b");
  assert.equal(addressOf(place), "/?namespaces=a,b&select=node/n");
});

test("Shims and controllers have their own views", () => {
  assert.equal(addressOf(leadingTo(placeOf("/events", ""), "shim/spin")), "/rollouts?select=shim/spin&shim=spin");
  assert.equal(addressOf(leadingTo(placeOf("/events", "?q=1"), "node/n")), "/events?q=1&select=node/n");
  assert.equal(addressOf(leadingTo(placeOf("/traces", ""), "node/n")), "/?select=node/n");
});

test("messages are read from pieces of any size", () => {
  const text = ": still here\n\nretry: 1000\n\nevent: delta\nid: a.1\ndata: {\"x\":\ndata:  1}\n\nevent: bye\r\ndata: {}\r\n\r\n";
  for (const size of [1, 2, 7, 1000]) {
    const reader = new Reader();
    const found = [];
    for (let at = 0; at < text.length; at += size) {
      found.push(...reader.take(text.slice(at, at + size)));
    }
    assert.deepEqual(found, [
      { event: "delta", data: '{"x":\n 1}', id: "a.1" },
      { event: "bye", data: "{}", id: "" },
    ]);
  }
});

test("events are kept once, newest first, up to the limit", () => {
  const first = mergeEvents([], [busEvent(1), busEvent(2)]);
  assert.deepEqual(mergeEvents(first, [busEvent(2), busEvent(3)]).map((one) => one.sequence), [3, 2, 1]);
  const many = Array.from({ length: EVENTS_KEPT + 5 }, (_, at) => busEvent(at));
  assert.equal(mergeEvents([], many).length, EVENTS_KEPT);
  assert.equal(mergeEvents([], many)[0]?.sequence, EVENTS_KEPT + 4);
});

test("a query of the server has only the filters of the address", () => {
  assert.equal(eventsQuery({ types: "node.*", q: "x", select: "node/n" }, { recent: "5" }), "types=node.*&recent=5");
  assert.equal(storedEventsQuery({ streams: "events,dead-letters", since: "2026-11-21T10:00:00Z" }, ""), "streams=events&since=2026-11-21T10%3A00%3A00.000Z");
  assert.equal(storedEventsQuery({ since: "yesterday" }, "7"), "streams=events&after=7");
});

test("events of one trace are one change", () => {
  const trace = "ab".repeat(16);
  const found = changes([busEvent(3, { trace, type: "node.ready" }), busEvent(2, { trace: null }), busEvent(1, { trace, type: "node.opted_in" })]);
  assert.equal(found.length, 1);
  assert.deepEqual([found[0]?.count, found[0]?.first.sequence, found[0]?.types], [2, 1, ["node.opted_in", "node.ready"]]);
});

test("bars of a trace lie within it, also when a span ends before it begins", () => {
  const span = (id: string, start: number, end: number) => ({ depth: 0, span: id, parent: null, name: id, service: "s", start, end, error: null, links: [], attributes: {} });
  const found = waterfall({ trace: "t", whole: true, cut: false, link: null, spans: [span("a", 1e9, 3e9), span("b", 2e9, 2.5e9), span("c", 2e9, 1e9)] });
  assert.deepEqual(found.bars.map((bar) => [bar.left, bar.width]), [[0, 1], [0.5, 0.25], [0.5, 0]]);
  assert.equal(found.took, 2000);
  assert.equal(waterfall({ trace: "t", whole: true, cut: false, link: null, spans: [] }).took, 0);
});

test("figures have readable units", () => {
  assert.deepEqual([bytes(null), bytes(512), bytes(1536), bytes(300 * 2 ** 20)], ["–", "512 B", "1.5 KiB", "300 MiB"]);
  assert.deepEqual([duration(0.25), duration(2.25), duration(1500), duration(90_000)], ["250 µs", "2.3 ms", "1.50 s", "1 min 30 s"]);
  assert.equal(clock("2026-11-21T00:00:00", new Date("2026-11-21T12:00:00")), "00:00:00");
  assert.equal(clock("2026-11-20T00:00:00", new Date("2026-11-21T12:00:00")), "2026-11-20 00:00:00");
});

test("keys move only to existing cells", () => {
  assert.deepEqual([step("ArrowDown", 1, 3, 6), step("ArrowUp", 1, 3, 6), step("End", 1, 3, 6), step("ArrowRight", 5, 3, 6), step("x", 1, 3, 6)], [4, undefined, 5, undefined, undefined]);
});

test("ages are written as kubectl writes them", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  assert.deepEqual(
    ["2026-11-21T11:59:15Z", "2026-11-21T11:48:00Z", "2026-11-21T07:00:00Z", "2026-11-18T12:00:00Z", "2026-11-22T12:00:00Z", "x"].map((time) => age(time, now)),
    ["45s", "12m", "5h", "3d", "0s", ""],
  );
});

test("an event has the reason and the message of its data, a dead letter its own", () => {
  assert.equal(outcome(busEvent(1, { data: { reason: "InstallerFailed", message: "no space" } })), "InstallerFailed: no space");
  assert.equal(outcome(busEvent(1, { data: { name: "n1" } })), "");
  const letter = { ...busEvent(1), stream: "dead-letters", reason: "Unparseable", error: "no JSON" } as const;
  assert.equal(outcome(letter as never), "Unparseable: no JSON");
});

test("the reason of an entity is written once", () => {
  assert.equal(cause({ reason: "LatticeUnreachable", message: "LatticeUnreachable: refused" }), "LatticeUnreachable: refused");
  assert.equal(cause({ reason: "NotCreated", message: "no pods" }), "NotCreated: no pods");
  assert.equal(cause({ reason: null, message: null }), "");
});
