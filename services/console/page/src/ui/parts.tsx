/* Small things that views share: what is not allowed, counts by state, the field to search in. */

import type { ComponentChildren, JSX } from "preact";

import type { Refused } from "../live/api.ts";
import { go, known, place, set } from "../live/store.ts";
import type { Entity, State } from "../model/entities.ts";
import { idOf } from "../model/entities.ts";
import { addressOf, leadingTo } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { isRead, obstacles, tally } from "../model/selectors.ts";
import type { Shown } from "../model/selectors.ts";
import { called, figure, KIND_WORDS, STATE_WORDS } from "../model/words.ts";
import { Glyph } from "./glyph.tsx";
import { Said } from "./said.tsx";

export function shownNow(): Shown {
  const query = place.value.query;
  return { text: query["q"] ?? "", state: query["state"] ?? "" };
}

/** What keeps some of it from being shown stands where it would be: not allowed is not empty. */
export function Lacking({ parts }: { readonly parts: readonly string[] }): JSX.Element | null {
  const found = obstacles(known(), parts);
  return found.length === 0 ? null : (
    <ul class="lacking">
      {found.map(({ part, say, do: todo }) => (
        <li key={`${part.name} ${say}`}>
          <Glyph state="troubled" silent />
          <span>
            <strong>{say}</strong>
            {todo === null ? null : <> – <Said text={todo} /></>}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Why a list has nothing in it. */
export function Nothing({ parts, all, what }: { readonly parts: readonly string[]; readonly all: number; readonly what: string }): JSX.Element {
  if (all > 0) {
    return <p class="nothing">None of {figure(all)} fits the search.</p>;
  }
  if (obstacles(known(), parts).length > 0) {
    return <p class="nothing">Nothing can be shown here.</p>;
  }
  return <p class="nothing">{isRead(known(), parts) ? `There are no ${what}.` : `Reading the ${what} …`}</p>;
}

/** How many there are in each state, as one bar and as buttons that leave those alone. */
export function Tally({ of, label }: { readonly of: readonly Entity[]; readonly label: string }): JSX.Element | null {
  const counts = tally(of);
  const state = place.value.query["state"] ?? "";
  if (counts.length === 0) {
    return null;
  }
  return (
    <div class="tally">
      <div class="bar" aria-hidden="true">
        {counts.map(([one, count]) => (
          <span key={one} class={`is-${one}`} style={{ flexGrow: count }} />
        ))}
      </div>
      <div class="chips" role="group" aria-label={`${label} by state`}>
        {counts.map(([one, count]) => (
          <button key={one} type="button" class="chip" aria-pressed={state === one} onClick={() => set({ state: state === one ? "" : one }, "replace")}>
            <Glyph state={one as State} silent />
            {figure(count)} {STATE_WORDS[one]}
          </button>
        ))}
      </div>
    </div>
  );
}

export function Problem({ error, again }: { readonly error: Refused; readonly again?: () => void }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <Glyph state="troubled" silent />
      <p>
        <strong>{error.message}</strong>
        {error.todo === "" ? null : <> – <Said text={error.todo} /></>}
      </p>
      {again === undefined ? null : (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A link to an entity, in the view it is best seen in, with its own page open. */
export function EntityLink({ entity }: { readonly entity: Entity }): JSX.Element {
  const kind = entity.kind === "part" ? entity.kind : KIND_WORDS[entity.kind];
  return (
    <PlaceLink to={leadingTo(place.value, idOf(entity))} class="entity-link">
      <Glyph state={entity.state} />
      <span class="kind">{kind}</span> {called(entity)}
    </PlaceLink>
  );
}

/** A link within the page: its address is a whole one, so it can be copied and opened elsewhere. */
export function PlaceLink({ to, children, ...rest }: { readonly to: Place; readonly children: ComponentChildren; readonly class?: string; readonly title?: string; readonly "aria-current"?: "page" | undefined }): JSX.Element {
  return (
    <a
      {...rest}
      href={addressOf(to)}
      onClick={(event) => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey) {
          event.preventDefault();
          go(to);
        }
      }}
    >
      {children}
    </a>
  );
}

/** `count`: how many there are; none is said of what is not allowed, or not read yet, and comes to 0. */
export function Heading({ children, count, parts = [] }: { readonly children: ComponentChildren; readonly count?: number; readonly parts?: readonly string[] }): JSX.Element {
  const unknown = count === 0 && (obstacles(known(), parts).length > 0 || !isRead(known(), parts));
  return (
    <h2>
      {children}
      {count === undefined || unknown ? null : <span class="count">{figure(count)}</span>}
    </h2>
  );
}
