/* What is said on the bus: live, or what was said, with filters that stand in the address.

   In: the stream or pages of the past. Invariants: what somebody reads does not move away under him: while he looks at
   what is older, or has paused, new events wait and are counted. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { away, events, eventsLine, gap, hear } from "../live/bus.ts";
import { place, set } from "../live/store.ts";
import type { Happening } from "../model/entities.ts";
import { asked, askedPast, has, keyOf } from "../model/happenings.ts";
import { clock, counted } from "../model/words.ts";
import { Glyph } from "../ui/glyph.tsx";
import { Heading, Problem } from "../ui/parts.tsx";
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
        <div class="chips" role="group" aria-label="Which time">
          <button type="button" class="chip" aria-pressed={!past} onClick={() => set({ mode: "", since: "", until: "" })}>
            Live
          </button>
          <button type="button" class="chip" aria-pressed={past} onClick={() => set({ mode: "past" })}>
            The past
          </button>
        </div>
        <EventFilters past={past} />
      </header>
      {past ? <Past /> : <Live />}
    </section>
  );
}

function Live(): JSX.Element {
  const query = asked(place.value.query, { recent: RECENT });
  useEffect(() => hear(query), [query]);
  const [held, hold] = useState<readonly Happening[] | null>(null);
  useEffect(() => hold(null), [query]);
  const text = place.value.query["q"] ?? "";
  const now = events.value;
  const shown = (held ?? now).filter((one) => text === "" || has(one, text));
  const fresh = held === null ? 0 : now.findIndex((one) => held[0] !== undefined && keyOf(one) === keyOf(held[0]));
  const waiting = held === null ? 0 : held.length === 0 ? now.length : fresh < 0 ? now.length : fresh;
  return (
    <>
      <p class="status" role="status">
        {away.value === null ? null : <Missing say={`nothing comes from the bus: ${away.value}`} />}
        {gap.value ? <Missing say="more was said than is kept: some of it is missing here; look at the past" /> : null}
        {eventsLine.value.is === "lost" ? <Missing say={[eventsLine.value.why, eventsLine.value.todo].filter(Boolean).join(", ")} /> : null}
        <button type="button" class="chip" aria-pressed={held !== null} onClick={() => hold(held === null ? now : null)}>
          {held === null ? "Pause" : `Paused, ${counted(waiting, "new event")}: go on`}
        </button>
        <span class="soft">{counted(shown.length, "event")}, the newest first</span>
      </p>
      <List
        of={shown}
        none={eventsLine.value.is === "live" ? "Nothing was said yet that fits." : "Listening …"}
        scrolled={(down) => {
          if (down && held === null) {
            hold(events.value);
          }
        }}
      />
    </>
  );
}

function Missing({ say }: { readonly say: string }): JSX.Element {
  return (
    <span class="missing">
      <Glyph state="troubled" silent /> {say}
    </span>
  );
}

interface Read {
  readonly events: readonly Happening[];
  readonly next: number | null;
  readonly reading: boolean;
  readonly error: Refused | null;
}

function Past(): JSX.Element {
  const query = askedPast(place.value.query, "");
  const [read, put] = useState<Read>({ events: [], next: null, reading: true, error: null });
  const [page, turn] = useState({ query, after: "" });
  const asking = page.query === query ? page.after : "";
  useEffect(() => {
    const abort = new AbortController();
    put((was) => ({ ...was, ...(asking === "" ? { events: [], next: null } : {}), reading: true, error: null }));
    get<{ events: Happening[]; next: number | null }>(`/api/events?${askedPast(place.value.query, asking)}`, abort.signal).then(
      (found) => put((was) => ({ events: asking === "" ? found.events : [...was.events, ...found.events], next: found.next, reading: false, error: null })),
      (error: unknown) => abort.signal.aborted || put((was) => ({ ...was, reading: false, error: asRefused(error) })),
    );
    return () => abort.abort();
  }, [query, asking]);
  const text = place.value.query["q"] ?? "";
  const shown = read.events.filter((one) => text === "" || has(one, text));
  return (
    <>
      <p class="status" role="status">
        <span>
          {counted(shown.length, "event")}, the oldest first{read.reading ? ", reading …" : read.next === null ? ", that is all" : ""}
        </span>
        {read.next === null || read.reading ? null : (
          <button type="button" class="chip" onClick={() => turn({ query, after: String(read.next) })}>
            Read on
          </button>
        )}
      </p>
      {read.error === null ? null : <Problem error={read.error} />}
      <List of={shown} none={read.reading ? "Reading …" : "Nothing was said that fits."} />
    </>
  );
}

function List({ of, none, scrolled }: { readonly of: readonly Happening[]; readonly none: string; readonly scrolled?: (down: boolean) => void }): JSX.Element {
  const chosen = place.value.query["event"] ?? "";
  useEffect(() => {
    seen.clear();
    for (const one of of) {
      seen.set(keyOf(one), one);
    }
  }, [of]);
  return (
    <div class="scrolled" data-scrolls onScroll={(event) => scrolled?.(event.currentTarget.scrollTop > 8)}>
      {of.length === 0 ? <p class="nothing">{none}</p> : null}
      <Virtual
        items={of}
        keyOf={keyOf}
        label="Events"
        height={narrow.value ? 50 : 34}
        selected={chosen}
        cell={(one, properties) => (
          <button type="button" class={`event stream-${one.stream}`} data-key={keyOf(one)} aria-pressed={chosen === keyOf(one)} onClick={() => set({ event: chosen === keyOf(one) ? "" : keyOf(one), select: "" })} {...properties}>
            <time dateTime={one.time}>{clock(one.time)}</time>
            <span class="type">
              {one.stream === "letters" ? <Glyph state="troubled" silent /> : null}
              {one.type}
            </span>
            <span class="about">{one.about ?? one.lattice ?? ""}</span>
            <span class="soft from">
              {one.stream === "letters" ? "dead letter" : one.stream === "lattice" ? `lattice ${one.lattice ?? ""}` : (one.source ?? "")}
            </span>
            <span class="soft trace">{one.trace === null ? "" : one.trace.slice(0, 8)}</span>
          </button>
        )}
      />
    </div>
  );
}

/** What is in the list, for the page beside it. */
export const seen = new Map<string, Happening>();
