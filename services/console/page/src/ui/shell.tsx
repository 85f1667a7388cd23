/* Frame of every view: navigation, viewer, connection, panel, global keys. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { asRefused, Refused } from "../live/api.ts";
import { putTheme, shortcuts, theme, THEMES } from "../live/appearance.ts";
import type { Theme } from "../live/appearance.ts";
import { connection, currentModel, loaded, logOut, place, reconnect, session, set, open } from "../live/store.ts";
import { addressOf, viewed, VIEWS } from "../model/place.ts";
import type { View } from "../model/place.ts";
import { clock } from "../model/format.ts";
import { ControllersView } from "../views/controllers.tsx";
import { Detail } from "../views/detail.tsx";
import { EventPanel } from "../views/event_panel.tsx";
import { EventsView } from "../views/events.tsx";
import { DeadLetterPanel, DeadLettersView } from "../views/dead_letters.tsx";
import { MapView } from "../views/map.tsx";
import { RolloutsView } from "../views/rollouts.tsx";
import { SpanPanel, TracesView } from "../views/traces.tsx";
import { ErrorBoundary } from "./error_boundary.tsx";
import { Glyph } from "./glyph.tsx";
import { Keys } from "./keys.tsx";
import { PlaceLink, Problem } from "./parts.tsx";

const TITLES: Readonly<Record<View, string>> = {
  map: "Map",
  rollouts: "Rollouts",
  events: "Events",
  traces: "Traces",
  controllers: "Controllers",
  "dead-letters": "Dead letters",
};
const COMPONENTS: Readonly<Record<View, () => JSX.Element>> = {
  map: MapView,
  rollouts: RolloutsView,
  events: EventsView,
  traces: TracesView,
  controllers: ControllersView,
  "dead-letters": DeadLettersView,
};
/** Parameters that Escape closes, in this order. */
const CLOSES = ["select", "event", "dead-letter", "span"] as const;

export function Shell(): JSX.Element {
  const [keys, showKeys] = useState(false);
  useEffect(() => {
    const listener = (event: KeyboardEvent): void => pressed(event, () => showKeys(true));
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  const view = place.value.view;
  useEffect(() => {
    document.title = `${TITLES[view]} · ${session.value?.cluster ?? "Trellis"}`;
  }, [view, session.value]);
  useEffect(() => {
    // A phone does not show all of them.
    document.querySelector("nav [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [view]);
  const View = COMPONENTS[view];
  const panel = panelNow();
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>
        Skip to content
      </a>
      <PageHeader keys={() => showKeys(true)} />
      <Banner />
      <div class={panel === null ? "page" : "page with-panel"}>
        <main id="main" tabIndex={-1} aria-label={TITLES[view]} data-loaded={loaded.value} data-revision={currentModel().revision}>
          <h1 class="visually-hidden">{TITLES[view]}</h1>
          <ErrorBoundary key={view} at={addressOf(place.value)}>
            <View />
          </ErrorBoundary>
        </main>
        {panel === null ? null : <ErrorBoundary at={addressOf(place.value)}>{panel}</ErrorBoundary>}
      </div>
      {keys ? <Keys close={() => showKeys(false)} /> : null}
    </>
  );
}

function panelNow(): JSX.Element | null {
  const { view, query } = place.value;
  const { select, event, "dead-letter": deadLetter, span } = query;
  if (select !== undefined) {
    return <Detail id={select} key={select} />;
  }
  if (view === "events" && event !== undefined) {
    return <EventPanel id={event} />;
  }
  if (view === "dead-letters" && deadLetter !== undefined) {
    return <DeadLetterPanel sequence={deadLetter} key={deadLetter} />;
  }
  return view === "traces" && span !== undefined ? <SpanPanel id={span} /> : null;
}

function PageHeader({ keys }: { readonly keys: () => void }): JSX.Element {
  const view = place.value.view;
  const who = session.value;
  return (
    <header class="page-header">
      <p class="brand">
        Trellis <span class="secondary">{who?.cluster ?? ""}</span>
      </p>
      <nav aria-label="Views">
        <ul>
          {VIEWS.map((one) => (
            <li key={one}>
              <PlaceLink to={viewed(place.value, one)} aria-current={one === view ? "page" : undefined}>
                {TITLES[one]}
              </PlaceLink>
            </li>
          ))}
        </ul>
      </nav>
      <div class="tools">
        <label class="search">
          <span class="visually-hidden">Search in this view</span>
          <input id="search" type="search" placeholder="Search  /" value={place.value.query["q"] ?? ""} spellcheck={false} autocomplete="off" onInput={(event) => set({ q: event.currentTarget.value }, "replace")} />
        </label>
        <Namespaces />
        <Live />
        <Account keys={keys} />
      </div>
    </header>
  );
}

/** The watched namespaces, for viewers without permissions in the whole cluster. */
function Namespaces(): JSX.Element {
  const most = session.value?.namespaces_most ?? 12;
  return (
    <label class="namespaces">
      <span class="visually-hidden">Namespaces, separated by commas, at most {most}; empty for all</span>
      <input
        name="namespaces"
        placeholder="all namespaces"
        title={`Namespaces, separated by commas, at most ${most}; empty for all`}
        value={place.value.query["namespaces"] ?? ""}
        spellcheck={false}
        autocomplete="off"
        onChange={(event) => set({ namespaces: event.currentTarget.value.split(/[\s,]+/).filter(Boolean).join(",") })}
      />
    </label>
  );
}

function Live(): JSX.Element {
  const state = connection.value.is;
  return (
    <span class={`live live-${state}`}>
      <Glyph health={state === "live" ? "Healthy" : state === "lost" ? "Degraded" : "Progressing"} decorative />
      {state === "live" ? "live" : state === "lost" ? "disconnected" : "connecting"}
    </span>
  );
}

function Account({ keys }: { readonly keys: () => void }): JSX.Element {
  const who = session.value;
  const [failed, setFailed] = useState<Refused | null>(null);
  const leave = (): void => {
    setFailed(null);
    logOut().catch((error: unknown) => setFailed(asRefused(error)));
  };
  return (
    <details class="account">
      <summary aria-label="Account and settings">
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
          <path class="fill" d="M2 3h12v1.6H2zM2 7.2h12v1.6H2zM2 11.4h12V13H2z" />
        </svg>
      </summary>
      <div class="menu">
        <p class="user">{who?.user}</p>
        <p class="secondary">{who?.auth === "proxy" ? "authenticated by a proxy" : "logged in with a token"}</p>
        <label>
          Theme{" "}
          <select value={theme.value} onChange={(event) => putTheme(event.currentTarget.value as Theme)}>
            {THEMES.map((one) => (
              <option key={one} value={one}>
                {one === "auto" ? "system" : one}
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={keys}>
          Keyboard shortcuts (?)
        </button>
        {who?.auth === "token" ? (
          <button type="button" onClick={leave}>
            Log out
          </button>
        ) : null}
        {failed === null ? null : <Problem error={new Refused(failed.status, `you are still logged in: ${failed.message}`, failed.remedy, 0)} />}
        <p class="secondary">version {who?.version}</p>
      </div>
    </details>
  );
}

/** Reason and time of a lost connection. */
function Banner(): JSX.Element {
  const state = connection.value;
  return (
    <div class="banner" aria-live="assertive" role="status">
      {state.is === "lost" ? (
        <p>
          <Glyph health="Degraded" decorative /> Disconnected since {clock(state.since)}: {state.why}
          {state.remedy === "" ? "" : `, ${state.remedy}`}. The page shows the last known state.{" "}
          <button type="button" onClick={reconnect}>
            Reconnect
          </button>
        </p>
      ) : null}
    </div>
  );
}

function pressed(event: KeyboardEvent, keys: () => void): void {
  if (event.key === "Escape" && document.querySelector("dialog[open]") === null) {
    const who = document.querySelector<HTMLDetailsElement>("details.account[open]");
    if (who !== null) {
      who.open = false;
      who.querySelector("summary")?.focus();
      return;
    }
    const open = CLOSES.find((one) => place.value.query[one] !== undefined);
    if (open !== undefined) {
      set({ [open]: "" });
    }
    return;
  }
  const target = event.target as HTMLElement;
  if (!shortcuts.value || event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog") !== null) {
    return;
  }
  const view = VIEWS[Number(event.key) - 1];
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === "?") {
    event.preventDefault();
    keys();
  } else if (view !== undefined) {
    open(view);
  }
}
