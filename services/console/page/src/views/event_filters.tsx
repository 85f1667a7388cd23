/* The filters of events: a form whose fields are parameters of the address. */

import type { JSX } from "preact";

import { place, set } from "../live/store.ts";
import { STREAMS } from "../model/events.ts";
import { FilterField } from "../ui/field.tsx";

const STREAM_WORDS = { events: "events", lattice: "lattice events", "dead-letters": "dead letters" } as const;
const FIELDS = [
  ["types", "Types", "node.ready, rollout.*"],
  ["object", "Object", "node/n1"],
  ["namespace", "Namespace", "team"],
  ["lattice", "Lattice", "default"],
  ["trace", "Trace", "at least 8 hex digits"],
] as const;

export function EventFilters({ past }: { readonly past: boolean }): JSX.Element {
  const query = place.value.query;
  const streams = (query["streams"] ?? "").split(",").filter(Boolean);
  const kinds = past ? STREAMS.filter((one) => one !== "dead-letters") : STREAMS;
  const on = (stream: string): boolean => (past ? (streams[0] === "lattice" ? "lattice" : "events") === stream : streams.length === 0 || streams.includes(stream));
  const toggle = (stream: string): void => {
    if (past) {
      set({ streams: stream }, "replace");
      return;
    }
    const next = STREAMS.filter((one) => (one === stream ? !on(one) : on(one)));
    set({ streams: next.length === STREAMS.length || next.length === 0 ? "" : next.join(",") }, "replace");
  };
  return (
    <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <div class="chips" role="group" aria-label="Streams">
        {kinds.map((one) => (
          <button key={one} type="button" class="chip" aria-pressed={on(one)} onClick={() => toggle(one)}>
            {STREAM_WORDS[one]}
          </button>
        ))}
      </div>
      {FIELDS.map(([name, label, example]) => (
        <FilterField key={name} name={name} label={label} example={example} closes="event" />
      ))}
      {past
        ? (["since", "until"] as const).map((name) => (
            <label key={name}>
              <span>{name === "since" ? "Since" : "Until"}</span>
              <input type="datetime-local" step={1} name={name} value={query[name] ?? ""} onChange={(event) => set({ [name]: event.currentTarget.value })} />
            </label>
          ))
        : null}
    </form>
  );
}
