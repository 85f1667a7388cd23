/* Texts for figures, times, kinds and events. Pure. */

import type { BusEvent, DeadLetter, Health, Kind, Stage } from "./entities.ts";

/** The part of a class name that a state of health has in style sheets. */
export const HEALTH_CLASSES: Readonly<Record<Health, string>> = {
  Healthy: "healthy",
  Progressing: "progressing",
  Suspended: "suspended",
  Degraded: "degraded",
  Missing: "missing",
  "Not opted in": "not-opted-in",
  Unknown: "unknown",
};

export const KIND_WORDS: Readonly<Record<Kind, string>> = {
  node: "node",
  shim: "Shim",
  hostgroup: "host group",
  host: "host",
  application: "application",
  service: "Service",
  controller: "controller",
  whostgroup: "host group (v2)",
  whost: "host (v2)",
  workload: "Workload",
  workloaddeployment: "WorkloadDeployment",
  artifact: "Artifact",
  wservice: "Service (v2)",
  deployment: "Deployment",
  statefulset: "StatefulSet",
  daemonset: "DaemonSet",
  job: "Job",
  cronjob: "CronJob",
  spinapp: "SpinApp",
  pod: "pod",
};

export const STAGE_WORDS: Readonly<Record<Stage, string>> = {
  Updated: "updated",
  InProgress: "in progress",
  Waiting: "waiting",
  Blocked: "blocked",
  Failed: "failed",
  Removing: "to be removed",
};

export const STAGE_HEALTHS: Readonly<Record<Stage, Health>> = {
  Updated: "Healthy",
  InProgress: "Progressing",
  Waiting: "Progressing",
  Blocked: "Suspended",
  Failed: "Degraded",
  Removing: "Progressing",
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

/** Return the time of day, with the date if it is not today. */
export function clock(text: string | number, now: Date = new Date()): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) {
    return String(text);
  }
  const day = time.toDateString() === now.toDateString() ? "" : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} `;
  return `${day}${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** Return the date and the time of day. */
export function dated(text: string | number): string {
  return clock(text, new Date(0));
}

/** Return the time since an event, as kubectl writes ages: `45s`, `12m`, `5h`, `3d`. */
export function age(text: string | number, now: number = Date.now()): string {
  const seconds = Math.max(0, Math.floor((now - new Date(text).getTime()) / 1000));
  if (Number.isNaN(seconds)) {
    return "";
  }
  const units = [["d", 86_400], ["h", 3600], ["m", 60]] as const;
  const [unit, size] = units.find(([, one]) => seconds >= 2 * one) ?? (["s", 1] as const);
  return `${Math.floor(seconds / size)}${unit}`;
}

/** Return reason and message of an event, from its data; a dead letter has both itself. */
export function outcome(event: BusEvent): string {
  const data: Readonly<Record<string, unknown>> = typeof event.data === "object" && event.data !== null ? (event.data as Record<string, unknown>) : {};
  const deadLetter: Partial<DeadLetter> = event.stream === "dead-letters" ? (event as DeadLetter) : {};
  const text = (...names: readonly string[]): string => names.map((name) => data[name]).find((one) => typeof one === "string" && one !== "") as string | undefined ?? "";
  const reason = deadLetter.reason ?? text("reason", "kind", "phase", "state");
  const message = deadLetter.error ?? deadLetter.obstacle ?? text("message", "error");
  return [reason, message].filter((one) => one !== "").join(": ");
}

/** Return reason and message of an entity, the reason once. */
export function cause(entity: { readonly reason: string | null; readonly message: string | null }): string {
  const { reason, message } = entity;
  return message !== null && reason !== null && message.startsWith(`${reason}:`) ? message : [reason, message].filter((one) => one !== null).join(": ");
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${figure(count)} ${count === 1 ? one : many}`;
}

/** Return `namespace/name`. */
export function called(entity: { readonly namespace: string | null; readonly name: string }): string {
  return entity.namespace === null ? entity.name : `${entity.namespace}/${entity.name}`;
}
