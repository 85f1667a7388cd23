/* One change as a waterfall of spans; without an id, the recent changes.

   In: `trace` of the address. Out: bars on one axis. Called by the shell. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { events, eventsConnection, subscribe } from "../live/bus.ts";
import { place, session, set } from "../live/store.ts";
import type { Trace } from "../model/entities.ts";
import { eventsQuery, changes, matchesText } from "../model/events.ts";
import { viewed } from "../model/place.ts";
import { waterfall } from "../model/waterfall.ts";
import type { Bar } from "../model/waterfall.ts";
import { counted, dated, duration } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { Heading, PlaceLink, Problem } from "../ui/parts.tsx";
import { emptyText, MissingEventPermissions } from "../ui/missing_permissions.tsx";
import { narrow } from "../ui/narrow.ts";
import { Panel } from "../ui/panel.tsx";
import { Virtual } from "../ui/virtual.tsx";

const HUES = 6;

export function TracesView(): JSX.Element {
  const trace = (place.value.query["trace"] ?? "").toLowerCase();
  return (
    <section class="traces" aria-label="Traces">
      <header>
        <Heading>Traces</Heading>
        <form
          class="filters"
          onSubmit={(event) => {
            event.preventDefault();
            set({ trace: String(new FormData(event.currentTarget).get("trace") ?? "").trim(), span: "" });
          }}
        >
          <label>
            <span>Trace</span>
            <input name="trace" key={trace} defaultValue={trace} placeholder="32 hex digits" spellcheck={false} autocomplete="off" size={34} />
          </label>
          <button type="submit">Show</button>
          {trace === "" ? null : <PlaceLink to={viewed(place.value, "traces")}>Recent changes</PlaceLink>}
        </form>
      </header>
      {trace === "" ? <Changes /> : <One trace={trace} key={trace} />}
    </section>
  );
}

function Changes(): JSX.Element {
  const query = eventsQuery({}, { streams: "events", recent: "500" });
  useEffect(() => subscribe(query), []);
  const text = place.value.query["q"] ?? "";
  const found = changes(events.value).filter((one) => text === "" || matchesText(one.first, text) || matchesText(one.last, text));
  return (
    <>
      {session.value?.traces === false ? <p class="secondary">No Jaeger is configured: set TRELLIS_JAEGER_URL to open traces here.</p> : null}
      <MissingEventPermissions of="events" />
      <div class="scrolled" data-scrolls>
        {found.length === 0 ? <p class="empty">{eventsConnection.value.is === "live" ? emptyText("changes with a trace") : "Connecting …"}</p> : null}
        <Virtual
          items={found}
          keyOf={(one) => one.trace}
          label="Changes, newest first"
          height={narrow.value ? 50 : 34}
          cell={(one, properties) => (
            <button type="button" class="event change" data-key={one.trace} onClick={() => set({ trace: one.trace })} {...properties}>
              <time dateTime={one.first.time}>{dated(one.first.time)}</time>
              <span class="type">{one.types.slice(0, 3).join(" → ")}{one.types.length > 3 ? " …" : ""}</span>
              <span class="about">{one.first.about ?? ""}</span>
              <span class="secondary from">{counted(one.count, "event")}</span>
              <span class="secondary trace">{one.trace.slice(0, 8)}</span>
            </button>
          )}
        />
      </div>
    </>
  );
}

/** The shown trace, for the panel. */
const shown: { trace: Trace | null } = { trace: null };

function One({ trace }: { readonly trace: string }): JSX.Element {
  const [read, put] = useState<{ readonly trace?: Trace; readonly error?: Refused }>({});
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    get<Trace>(`/api/traces/${encodeURIComponent(trace)}`, abort.signal).then(
      (found) => {
        shown.trace = found;
        put({ trace: found });
      },
      (error: unknown) => abort.signal.aborted || put({ error: asRefused(error) }),
    );
    return () => abort.abort();
  }, [trace, attempt]);
  if (read.error !== undefined) {
    return <Problem error={read.error} retry={() => setAttempt(attempt + 1)} />;
  }
  if (read.trace?.spans.length === 0) {
    return (
      <p class="empty">
        Jaeger does not have this trace. It arrives within seconds, unless it was not sampled or has expired.{" "}
        <button type="button" class="text-button" onClick={() => setAttempt(attempt + 1)}>
          Refresh
        </button>
      </p>
    );
  }
  return read.trace === undefined ? <p class="empty">Loading …</p> : <Bars trace={read.trace} retry={() => setAttempt(attempt + 1)} />;
}

function Bars({ trace, retry }: { readonly trace: Trace; readonly retry: () => void }): JSX.Element {
  const { bars, took, began, services, errors } = waterfall(trace);
  const chosen = place.value.query["span"] ?? "";
  return (
    <>
      <p class="status">
        <strong>{duration(took)}</strong>
        <span class="secondary">
          from {dated(began)}, {counted(bars.length, "span")} of {services.length === 1 ? services[0] : `${services.length} services`}
        </span>
        {errors === 0 ? null : (
          <span class="missing">
            <Glyph health="Degraded" decorative /> {counted(errors, "error")}
          </span>
        )}
        {trace.whole ? null : <span class="secondary">incomplete: spans are missing</span>}
        {trace.cut ? <span class="secondary">more spans exist than are shown</span> : null}
        <button type="button" class="text-button" onClick={retry}>
          Refresh
        </button>
        <PlaceLink to={viewed(place.value, "events", { trace: trace.trace })}>Events</PlaceLink>
        {trace.link === null ? null : (
          <a href={trace.link} target="_blank" rel="noreferrer noopener">
            Open in Jaeger
          </a>
        )}
      </p>
      <ul class="legend" aria-label="Services">
        {services.map((service, index) => (
          <li key={service} class={`hue-${index % HUES}`}>
            {service}
          </li>
        ))}
      </ul>
      <div class="axis" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((at) => (
          <span key={at}>{duration(at * took)}</span>
        ))}
      </div>
      <div class="scrolled" data-scrolls>
        <Virtual
          items={bars}
          keyOf={(bar) => bar.span.span}
          label="Spans"
          height={30}
          selected={chosen}
          cell={(bar, properties) => (
            <button type="button" class={`span hue-${services.indexOf(bar.span.service) % HUES}`} data-key={bar.span.span} aria-pressed={chosen === bar.span.span} onClick={() => set({ span: chosen === bar.span.span ? "" : bar.span.span })} {...properties}>
              <span class="span-name" style={{ paddingInlineStart: `${Math.min(bar.span.depth, 12) * 0.9}em` }}>
                {bar.span.error === null ? null : <Glyph health="Degraded" />}
                {bar.span.name} <span class="secondary">{bar.span.service}</span>
              </span>
              <span class="track">
                <span class={`span-bar${bar.span.error === null ? "" : " failed"}`} style={{ left: `${bar.left * 100}%`, width: `max(2px, ${bar.width * 100}%)` }} />
                <span class={`span-duration${bar.width > 0.8 ? " inside" : ""}`} style={bar.width > 0.8 ? { right: `${(1 - bar.left - bar.width) * 100}%` } : bar.left + bar.width > 0.8 ? { right: `${(1 - bar.left) * 100}%` } : { left: `${(bar.left + bar.width) * 100}%` }}>
                  {duration(bar.took)}
                </span>
              </span>
            </button>
          )}
        />
      </div>
    </>
  );
}

export function SpanPanel({ id }: { readonly id: string }): JSX.Element | null {
  const trace = shown.trace;
  const bar: Bar | undefined = trace === null ? undefined : waterfall(trace).bars.find((one) => one.span.span === id);
  if (bar === undefined) {
    return null;
  }
  const { span } = bar;
  return (
    <Panel title={span.name} kind={`span of ${span.service}`} close={() => set({ span: "" })} key={id}>
      {span.error === null ? null : (
        <p class="health-line is-degraded">
          <Glyph health="Degraded" decorative /> {span.error}
        </p>
      )}
      <dl class="fields">
        {(
          [
            ["Start offset", duration(bar.offset)],
            ["Duration", duration(bar.took)],
            ["Span ID", span.span],
            ...Object.entries(span.attributes).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
          ] as [string, string][]
        ).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {span.links.map((link) => (
        <p key={`${link.trace}${link.span}`} class="links">
          <PlaceLink to={viewed(place.value, "traces", { trace: link.trace })}>linked trace {link.trace.slice(0, 8)}</PlaceLink>
        </p>
      ))}
    </Panel>
  );
}
