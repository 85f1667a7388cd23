/* Dead letters with the cause and the original message. In: `dead-letter` and filters of the address. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { events, subscribe } from "../live/bus.ts";
import { currentModel, place, set } from "../live/store.ts";
import type { DeadLetter, Explanation } from "../model/entities.ts";
import { eventsQuery, matchesText } from "../model/events.ts";
import { viewed } from "../model/place.ts";
import { age, bytes, counted, dated, figure } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { FilterField } from "../ui/field.tsx";
import { EntityLink, Heading, PlaceLink, Problem } from "../ui/parts.tsx";
import { MissingPermissions } from "../ui/missing_permissions.tsx";
import { Panel } from "../ui/panel.tsx";
import { Virtual } from "../ui/virtual.tsx";
import { Reasons } from "./detail.tsx";

const READ_MS = 1000;
const FIELDS = [
  ["object", "Object", "node/n1"],
  ["namespace", "Namespace", "team"],
  ["reason", "Reason", "Unparseable"],
] as const;

export function DeadLettersView(): JSX.Element {
  const query = place.value.query;
  const stored = eventsQuery(query, { streams: "", reason: query["reason"] ?? "" });
  const live = eventsQuery({ ...query, streams: "dead-letters" }, { recent: "1" });
  useEffect(() => subscribe(live), [live]);
  const newest = useNow(events.value[0]?.sequence ?? 0);
  const [read, put] = useState<{ readonly dead_letters?: readonly DeadLetter[]; readonly lacking?: readonly string[]; readonly most: number; readonly error?: Refused }>({ most: 0 });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    get<{ dead_letters: DeadLetter[]; lacking: string[]; most: number }>(`/api/dead-letters?${stored}`, abort.signal).then(put, (error: unknown) => abort.signal.aborted || put({ most: 0, error: asRefused(error) }));
    return () => abort.abort();
  }, [stored, newest, attempt]);
  const text = query["q"] ?? "";
  const found = (read.dead_letters ?? []).filter((one) => text === "" || matchesText(one, text) || `${one.reason} ${one.error}`.toLowerCase().includes(text.toLowerCase()));
  const chosen = query["dead-letter"] ?? "";
  return (
    <section class="dead-letters" aria-label="Dead letters">
      <header>
        <Heading {...(read.dead_letters === undefined ? {} : { count: read.dead_letters.length })}>Dead letters</Heading>
        <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
          {FIELDS.map(([name, label, example]) => (
            <FilterField key={name} name={name} label={label} example={example} />
          ))}
        </form>
      </header>
      {read.error === undefined ? null : <Problem error={read.error} retry={() => setAttempt(attempt + 1)} />}
      {read.dead_letters !== undefined && read.dead_letters.length === read.most ? <p class="secondary">Of the newest {figure(read.most)} dead letters.</p> : null}
      <MissingPermissions permissions={read.lacking ?? []} of="dead letters" />
      <div class="scrolled" data-scrolls>
        {found.length > 0 || read.error !== undefined ? null : <p class="empty">{read.dead_letters === undefined ? "Loading …" : (read.lacking ?? []).length > 0 ? "No dead letters that this account can read." : "No dead letters."}</p>}
        <Virtual
          items={found}
          keyOf={(one) => String(one.sequence)}
          label="Dead letters, newest first"
          height={64}
          selected={chosen}
          cell={(one, properties) => (
            <button type="button" class="dead-letter" data-key={one.sequence} aria-pressed={chosen === String(one.sequence)} onClick={() => set({ "dead-letter": chosen === String(one.sequence) ? "" : String(one.sequence), select: "" })} {...properties}>
              <span class="title">
                <Glyph health="Degraded" decorative />
                <span class="name">{one.reason}</span>
                <span class="phase">{one.service}</span>
                <time class="secondary" dateTime={one.time}>
                  {dated(one.time)} ({age(one.time)})
                </time>
              </span>
              <span class="message">
                {one.about ?? one.subject} – {one.error || one.obstacle}
              </span>
            </button>
          )}
        />
      </div>
    </section>
  );
}

/** Return a value, updated at intervals: dead letters arrive in bursts, and each read returns all of them. */
function useNow(value: number): number {
  const [shown, show] = useState(value);
  const newest = useRef(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  newest.current = value;
  useEffect(() => {
    if (value !== shown) {
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        show(newest.current);
      }, READ_MS);
    }
  }, [value, shown]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown;
}

interface FullDeadLetter extends DeadLetter {
  readonly headers: Readonly<Record<string, string>> | null;
  readonly body?: unknown;
  readonly body_text?: string;
  readonly body_base64?: string;
}

export function DeadLetterPanel({ sequence }: { readonly sequence: string }): JSX.Element {
  const [read, put] = useState<{ readonly dead_letter?: FullDeadLetter; readonly page?: Explanation; readonly error?: Refused }>({});
  useEffect(() => {
    const abort = new AbortController();
    put({});
    get<{ dead_letter: FullDeadLetter; page: Explanation }>(`/api/dead-letters/${encodeURIComponent(sequence)}`, abort.signal).then(put, (error: unknown) => abort.signal.aborted || put({ error: asRefused(error) }));
    return () => abort.abort();
  }, [sequence]);
  const letter = read.dead_letter;
  const about = letter?.about ? currentModel().get(letter.about) : undefined;
  return (
    <Panel title={sequence} kind="dead letter" close={() => set({ "dead-letter": "" })} key={sequence}>
      {read.error === undefined ? null : <Problem error={read.error} />}
      {letter === undefined && read.error === undefined ? <p class="empty">Loading …</p> : null}
      {read.page === undefined ? null : (
        <section class="cause">
          <h3>Cause</h3>
          <Reasons page={read.page} />
        </section>
      )}
      {letter === undefined ? null : (
        <>
          <p class="links">
            {about === undefined ? null : <EntityLink entity={about} />}
            {letter.trace_id ? <PlaceLink to={viewed(place.value, "traces", { trace: letter.trace_id })}>Trace</PlaceLink> : null}
          </p>
          <h3>Original message</h3>
          <p class="secondary">
            {letter.subject}, {bytes(letter.size)}
            {letter.truncated ? ", truncated" : ""}, {letter.deliveries === null ? "number of deliveries unknown" : counted(letter.deliveries, "delivery", "deliveries")}
          </p>
          {letter.headers === null || Object.keys(letter.headers).length === 0 ? null : <pre class="data">{Object.entries(letter.headers).map(([name, value]) => `${name}: ${value}`).join("\n")}</pre>}
          <pre class="data">{letter.body !== undefined ? JSON.stringify(letter.body, null, 2) : (letter.body_text ?? letter.body_base64 ?? "")}</pre>
          <p class="secondary">
            <code>trellis dead-letters replay {sequence}</code> publishes it to its service again.
          </p>
        </>
      )}
    </Panel>
  );
}
