/* Events on the bus: queries, and the list that is kept.

   Pure. In: the query of an address, events. Out: a query of the server, lists, changes by trace. */

import type { BusEvent } from "./entities.ts";
import { outcome } from "./format.ts";

export const STREAMS = ["events", "lattice", "dead-letters"] as const;
const FILTERS = ["streams", "types", "namespace", "object", "lattice", "trace"] as const;
export const EVENTS_KEPT = 2000;

/** Return the query of the server for the query of an address. */
export function eventsQuery(query: Readonly<Record<string, string>>, more: Readonly<Record<string, string>> = {}): string {
  const found = new URLSearchParams();
  for (const key of FILTERS) {
    const value = query[key];
    if (value !== undefined && value !== "") {
      found.set(key, value);
    }
  }
  for (const [key, value] of Object.entries(more)) {
    if (value !== "") {
      found.set(key, value);
    }
  }
  return found.toString();
}

/** Return the query for stored events: one stream, with times of the browser's time zone converted. */
export function storedEventsQuery(query: Readonly<Record<string, string>>, after: string): string {
  const streams = query["streams"] === "lattice" ? "lattice" : "events";
  return eventsQuery(query, { streams, since: zoned(query["since"] ?? ""), until: zoned(query["until"] ?? ""), after });
}

function zoned(text: string): string {
  const time = new Date(text);
  return text === "" || Number.isNaN(time.getTime()) ? "" : time.toISOString();
}

export function keyOf(event: BusEvent): string {
  return `${event.stream} ${event.sequence}`;
}

/** Return the events newest first, without duplicates, bounded. */
export function mergeEvents(kept: readonly BusEvent[], news: readonly BusEvent[]): BusEvent[] {
  const known = new Set(kept.map(keyOf));
  const fresh = news.filter((one) => !known.has(keyOf(one)) && known.add(keyOf(one)));
  return [...fresh.reverse(), ...kept].slice(0, EVENTS_KEPT);
}

export function matchesText(event: BusEvent, text: string): boolean {
  const found = [event.type, event.about, event.source, event.trace, event.lattice, outcome(event)].join("\n").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => found.includes(word));
}

export interface Change {
  readonly trace: string;
  readonly first: BusEvent;
  readonly last: BusEvent;
  readonly count: number;
  readonly types: readonly string[];
}

/** Return changes with a trace, newest first: events of one trace are one change. */
export function changes(events: readonly BusEvent[]): Change[] {
  const found = new Map<string, BusEvent[]>();
  for (const event of events) {
    if (event.trace !== null && event.trace !== "") {
      const those = found.get(event.trace) ?? [];
      those.push(event);
      found.set(event.trace, those);
    }
  }
  return [...found].flatMap(([trace, those]) => {
    const [last, first] = [those[0], those.at(-1)];
    return last === undefined || first === undefined
      ? []
      : [{ trace, first, last, count: those.length, types: [...new Set(those.map((one) => one.type).reverse())] }];
  });
}
