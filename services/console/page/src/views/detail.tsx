/* One thing: why it is as it is, what hangs together with it, what is known of it.

   In: an id. Out: a page beside the view. Invariant: the reasons are read anew when its state changes, and say when they
   were read. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { asRefused, get } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { known, place, session, set } from "../live/store.ts";
import { idOf } from "../model/entities.ts";
import type { Entity, Explanation } from "../model/entities.ts";
import { viewed } from "../model/place.ts";
import { own, related } from "../model/selectors.ts";
import { called, clock, figure, KIND_WORDS, STATE_WORDS } from "../model/words.ts";
import { Glyph } from "../ui/glyph.tsx";
import { EntityLink, PlaceLink, Problem } from "../ui/parts.tsx";
import { Panel } from "../ui/panel.tsx";
import { Said } from "../ui/said.tsx";

const SHOWN = 12;
const SETTLE_MS = 700;

export function Detail({ id }: { readonly id: string }): JSX.Element {
  const entity = known().get(id);
  const [kind, name] = titleOf(id);
  return (
    <Panel title={name} kind={kind} close={() => set({ select: "" })} key={id}>
      {entity === undefined ? (
        <p class="nothing">It is not there, or not to be seen by you. {explainedBy(id, undefined) === null ? "" : "What can be found out about it:"}</p>
      ) : (
        <p class={`verdict is-${entity.state}`}>
          <Glyph state={entity.state} silent /> <strong>{STATE_WORDS[entity.state]}</strong>
          {"phase" in entity && entity.phase !== null ? ` · ${entity.phase}` : ""}
          {entity.why === null ? null : (
            <>
              {" – "}
              <Said text={entity.why} />
            </>
          )}
        </p>
      )}
      <Why id={id} entity={entity} />
      <Related id={id} />
      <p class="ways">
        <PlaceLink to={viewed(place.value, "events", { object: id })}>What is said about it</PlaceLink>
        <PlaceLink to={viewed(place.value, "letters", { object: id })}>Its dead letters</PlaceLink>
        {entity?.kind === "shim" ? <PlaceLink to={viewed(place.value, "rollouts", { shim: entity.name })}>Its rollout</PlaceLink> : null}
      </p>
      {entity === undefined ? null : <Fields entity={entity} />}
    </Panel>
  );
}

function titleOf(id: string): [string, string] {
  const [kind = "", ...rest] = id.split("/");
  return [own<string>(KIND_WORDS, kind) ?? kind, rest.join("/")];
}

/** Return whose page of `trellis explain` says why; a host is explained by its group. */
function explainedBy(id: string, entity: Entity | undefined): string | null {
  const found = entity?.kind === "host" ? entity.group : id;
  // It may have been typed: of `..` a browser makes another address.
  const [, kind = ""] = /^([a-z]+)(\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?){1,2}$/.exec(found ?? "") ?? [];
  return (session.value?.explained ?? []).includes(kind) ? found : null;
}

function Why({ id, entity }: { readonly id: string; readonly entity: Entity | undefined }): JSX.Element | null {
  const subject = explainedBy(id, entity);
  const [read, put] = useState<{ readonly page?: Explanation; readonly error?: Refused; readonly at: number }>({ at: 0 });
  const [asked, ask] = useState(0);
  const first = useRef(true);
  const state = entity === undefined ? "" : `${entity.state} ${entity.why ?? ""}`;
  useEffect(() => {
    if (subject === null) {
      return undefined;
    }
    const abort = new AbortController();
    // What changes often is asked about once it rests.
    const timer = setTimeout(
      () => {
        first.current = false;
        get<Explanation>(`/api/explain/${subject.split("/").map(encodeURIComponent).join("/")}`, abort.signal).then(
          (page) => put({ page, at: Date.now() }),
          (error: unknown) => abort.signal.aborted || put({ error: asRefused(error), at: Date.now() }),
        );
      },
      first.current ? 0 : SETTLE_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [subject, state, asked]);
  if (subject === null) {
    return null;
  }
  return (
    <section class="why" aria-busy={read.at === 0}>
      <h3>
        Why{" "}
        <button type="button" class="quiet" onClick={() => ask(asked + 1)}>
          read again
        </button>
      </h3>
      {read.error === undefined ? null : <Problem error={read.error} />}
      {read.page === undefined ? (read.error === undefined ? <p class="nothing">Reading …</p> : null) : <Reasons page={read.page} at={read.at} />}
    </section>
  );
}

export function Reasons({ page, at }: { readonly page: Explanation; readonly at?: number }): JSX.Element {
  return (
    <>
      <p class="headline">
        <Said text={page.headline} />
      </p>
      <ol class="reasons">
        {page.lines.map((line, index) => (
          <li key={index}>
            {line.ok === null ? <span class="glyph dot" aria-hidden="true" /> : <Glyph state={line.ok ? "well" : "troubled"} />}
            <span>
              <strong>{line.about}</strong> <Said text={line.text} />
              {line.do === null ? null : <span class="todo"><Said text={line.do} /></span>}
            </span>
          </li>
        ))}
      </ol>
      {at === undefined ? null : <p class="soft">read at {clock(at)}</p>}
    </>
  );
}

function Related({ id }: { readonly id: string }): JSX.Element | null {
  const found = [...related(known(), id)];
  return found.length === 0 ? null : (
    <section>
      <h3>Hangs together with</h3>
      {found.map(([how, entities]) => (
        <div key={how} class="related">
          <h4>
            {how} <span class="count">{figure(entities.length)}</span>
          </h4>
          <ul>
            {entities.slice(0, SHOWN).map((one) => (
              <li key={idOf(one)}>
                <EntityLink entity={one} />
              </li>
            ))}
          </ul>
          {entities.length > SHOWN ? <p class="soft">and {figure(entities.length - SHOWN)} more</p> : null}
        </div>
      ))}
    </section>
  );
}

const TOLD = new Set(["kind", "namespace", "name", "state", "why"]);

function Fields({ entity }: { readonly entity: Entity }): JSX.Element {
  const fields = Object.entries(entity).filter(([name, value]) => !TOLD.has(name) && value !== null && !(Array.isArray(value) && value.length === 0));
  return (
    <section>
      <h3>What is known of {called(entity)}</h3>
      <dl class="fields">
        {fields.map(([name, value]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd>{written(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function written(value: unknown): string {
  if (typeof value === "boolean") {
    return value ? "yes" : "no";
  }
  if (Array.isArray(value)) {
    return value.map(written).join(", ");
  }
  if (typeof value === "object" && value !== null) {
    return Object.entries(value)
      .filter(([, one]) => one !== null)
      .map(([name, one]) => `${name} ${written(one)}`)
      .join(", ");
  }
  return String(value);
}
