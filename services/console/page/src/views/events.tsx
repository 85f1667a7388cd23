/* Events on the bus, live or stored, with filters in the address.

   In: the stream, or pages of stored events. Invariant: the list does not move while it is scrolled down or paused: new
   events wait and are counted. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { unavailable, events, eventsConnection, gap, subscribe } from "../live/bus.ts";
import { place, set } from "../live/store.ts";
import type { BusEvent } from "../model/entities.ts";
import { eventsQuery, storedEventsQuery, matchesText, keyOf } from "../model/events.ts";
import { age, clock, counted, dated, outcome } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { Heading, Problem } from "../ui/parts.tsx";
import { MissingPermissions, emptyText, MissingEventPermissions } from "../ui/missing_permissions.tsx";
import { narrow } from "../ui/narrow.ts";
import { Virtual } from "../ui/virtual.tsx";
import { EventFilters } from "./event_filters.tsx";

const RECENT = "200";

export function EventsView(): JSX.Element {
  const past = place.value.query["mode"] === "past";
  return (
    <section class="events" aria-label="Events">
      <header>
        <Heading>Events</Heading>
        <div class="chips" role="group" aria-label="Mode">
          <button type="button" class="chip" aria-pressed={!past} onClick={() => set({ mode: "", since: "", until: "" })}>
            Live
          </button>
          <button type="button" class="chip" aria-pressed={past} onClick={() => set({ mode: "past" })}>
            Stored
          </button>
        </div>
        <EventFilters past={past} />
      </header>
      {past ? <Past /> : <Live />}
    </section>
  );
}

function Live(): JSX.Element {
  const query = eventsQuery(place.value.query, { recent: RECENT });
  useEffect(() => subscribe(query), [query]);
  const [held, hold] = useState<readonly BusEvent[] | null>(null);
  useEffect(() => hold(null), [query]);
  const text = place.value.query["q"] ?? "";
  const now = events.value;
  const shown = (held ?? now).filter((one) => text === "" || matchesText(one, text));
  const fresh = held === null ? 0 : now.findIndex((one) => held[0] !== undefined && keyOf(one) === keyOf(held[0]));
  const waiting = held === null ? 0 : held.length === 0 ? now.length : fresh < 0 ? now.length : fresh;
  return (
    <>
      <p class="status" role="status">
        {unavailable.value === null ? null : <Notice text={`the bus is unavailable: ${unavailable.value}`} />}
        {gap.value ? <Notice text="the buffer overflowed: some events are missing here, see the stored ones" /> : null}
        {eventsConnection.value.is === "lost" ? <Notice text={[eventsConnection.value.why, eventsConnection.value.remedy].filter(Boolean).join(", ")} /> : null}
        <button type="button" class="chip" aria-pressed={held !== null} onClick={() => hold(held === null ? now : null)}>
          {held === null ? "Pause" : `Paused, ${counted(waiting, "new event")}: resume`}
        </button>
        <span class="secondary">{counted(shown.length, "event")}, newest first</span>
      </p>
      <MissingEventPermissions of="events" />
      <List
        of={shown}
        none={eventsConnection.value.is === "live" ? emptyText("matching events") : "Connecting …"}
        scrolled={(down) => {
          if (down && held === null) {
            hold(events.value);
          }
        }}
      />
    </>
  );
}

function Notice({ text }: { readonly text: string }): JSX.Element {
  return (
    <span class="missing">
      <Glyph health="Degraded" decorative /> {text}
    </span>
  );
}

interface Read {
  readonly events: readonly BusEvent[];
  readonly next: number | null;
  readonly lacking: readonly string[];
  readonly reading: boolean;
  readonly error: Refused | null;
}

function Past(): JSX.Element {
  const query = storedEventsQuery(place.value.query, "");
  const [read, put] = useState<Read>({ events: [], next: null, lacking: [], reading: true, error: null });
  const [page, turn] = useState({ query, after: "" });
  const asking = page.query === query ? page.after : "";
  useEffect(() => {
    const abort = new AbortController();
    put((was) => ({ ...was, ...(asking === "" ? { events: [], next: null } : {}), reading: true, error: null }));
    get<{ events: BusEvent[]; next: number | null; lacking: string[] }>(`/api/events?${storedEventsQuery(place.value.query, asking)}`, abort.signal).then(
      (found) => put((was) => ({ events: asking === "" ? found.events : [...was.events, ...found.events], next: found.next, lacking: found.lacking, reading: false, error: null })),
      (error: unknown) => abort.signal.aborted || put((was) => ({ ...was, reading: false, error: asRefused(error) })),
    );
    return () => abort.abort();
  }, [query, asking]);
  const text = place.value.query["q"] ?? "";
  const shown = read.events.filter((one) => text === "" || matchesText(one, text));
  return (
    <>
      <p class="status" role="status">
        <span>
          {counted(shown.length, "event")}, oldest first{read.reading ? ", loading …" : read.next === null ? ", complete" : ""}
        </span>
        {read.next === null || read.reading ? null : (
          <button type="button" class="chip" onClick={() => turn({ query, after: String(read.next) })}>
            Load more
          </button>
        )}
      </p>
      {read.error === null ? null : <Problem error={read.error} />}
      <MissingPermissions permissions={read.lacking} of="events" />
      <List of={shown} none={read.reading ? "Loading …" : read.lacking.length > 0 ? "No matching events that this account can read." : "No matching events."} />
    </>
  );
}

function List({ of, none, scrolled }: { readonly of: readonly BusEvent[]; readonly none: string; readonly scrolled?: (down: boolean) => void }): JSX.Element {
  const chosen = place.value.query["event"] ?? "";
  useEffect(() => {
    seen.clear();
    for (const one of of) {
      seen.set(keyOf(one), one);
    }
  }, [of]);
  return (
    <div class="scrolled" data-scrolls onScroll={(event) => scrolled?.(event.currentTarget.scrollTop > 8)}>
      {of.length === 0 ? <p class="empty">{none}</p> : null}
      <Virtual
        items={of}
        keyOf={keyOf}
        label="Events"
        height={narrow.value ? 50 : 34}
        selected={chosen}
        cell={(one, properties) => (
          <button type="button" class={`event stream-${one.stream}`} data-key={keyOf(one)} aria-pressed={chosen === keyOf(one)} onClick={() => set({ event: chosen === keyOf(one) ? "" : keyOf(one), select: "" })} {...properties}>
            <time dateTime={one.time} title={dated(one.time)}>
              {clock(one.time)} ({age(one.time)})
            </time>
            <span class="type">
              {one.stream === "dead-letters" ? <Glyph health="Degraded" decorative /> : null}
              {one.type}
            </span>
            <span class="about">{one.about ?? one.lattice ?? ""}</span>
            <span class="outcome">{outcome(one)}</span>
            <span class="secondary from">
              {one.stream === "dead-letters" ? "dead letter" : one.stream === "lattice" ? `lattice ${one.lattice ?? ""}` : (one.source ?? "")}
            </span>
            <span class="secondary trace">{one.trace === null ? "" : one.trace.slice(0, 8)}</span>
          </button>
        )}
      />
    </div>
  );
}

/** Events of the list, for the panel. */
export const seen = new Map<string, BusEvent>();
