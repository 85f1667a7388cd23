/* How figures, times and kinds are called. Pure. */

import type { Kind, Stage, State } from "./entities.ts";

export const STATE_WORDS: Readonly<Record<State, string>> = {
  well: "well",
  working: "working",
  waiting: "waiting",
  troubled: "troubled",
  off: "off",
  unknown: "unknown",
};

export const KIND_WORDS: Readonly<Record<Kind, string>> = {
  node: "node",
  shim: "Shim",
  hostgroup: "host group",
  host: "host",
  application: "application",
  service: "Service",
  controller: "controller",
};

export const STAGE_WORDS: Readonly<Record<Stage, string>> = {
  Updated: "updated",
  InWork: "in work",
  Waiting: "waiting",
  Held: "held",
  Failed: "failed",
  Leaving: "leaving",
};

export const STAGE_STATES: Readonly<Record<Stage, State>> = {
  Updated: "well",
  InWork: "working",
  Waiting: "waiting",
  Held: "waiting",
  Failed: "troubled",
  Leaving: "working",
};

export function bytes(count: number | null): string {
  if (count === null) {
    return "–";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let value = count;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function figure(count: number | null): string {
  return count === null ? "–" : count.toLocaleString("en");
}

/** Return a duration, given in milliseconds. */
export function duration(ms: number | null): string {
  if (ms === null) {
    return "–";
  }
  if (ms < 1) {
    return `${Math.round(ms * 1000)} µs`;
  }
  if (ms < 1000) {
    return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  }
  return ms < 60_000 ? `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s` : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** Return the time of day, with the date if that is another than `now`'s. */
export function clock(text: string | number, now: Date = new Date()): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) {
    return String(text);
  }
  const day = time.toDateString() === now.toDateString() ? "" : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} `;
  return `${day}${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${figure(count)} ${count === 1 ? one : many}`;
}

/** Return namespace and name, as people write them. */
export function called(entity: { readonly namespace: string | null; readonly name: string }): string {
  return entity.namespace === null ? entity.name : `${entity.namespace}/${entity.name}`;
}
