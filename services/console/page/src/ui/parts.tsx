/* Parts that views share: missing permissions, counts by health, links, headings. */

import type { ComponentChildren, JSX } from "preact";

import type { Refused } from "../live/api.ts";
import { go, currentModel, place, set } from "../live/store.ts";
import type { Entity, Health } from "../model/entities.ts";
import { idOf } from "../model/entities.ts";
import { addressOf, leadingTo } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { isRead, obstacles, tally } from "../model/selectors.ts";
import type { Shown } from "../model/selectors.ts";
import { called, figure, HEALTH_CLASSES, KIND_WORDS } from "../model/format.ts";
import { Glyph } from "./glyph.tsx";
import { Message } from "./message.tsx";

export function shownNow(): Shown {
  const query = place.value.query;
  return { text: query["q"] ?? "", health: query["health"] ?? "" };
}

/** Reasons that objects are not shown, in their place: forbidden is not empty. */
export function Lacking({ parts }: { readonly parts: readonly string[] }): JSX.Element | null {
  const found = obstacles(currentModel(), parts);
  return found.length === 0 ? null : (
    <ul class="lacking">
      {found.map(({ part, message, do: remedy }) => (
        <li key={`${part.name} ${message}`}>
          <Glyph health="Degraded" decorative />
          <span>
            <strong>{message}</strong>
            {remedy === null ? null : <> – <Message text={remedy} /></>}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The reason that a list is empty. */
export function Empty({ parts, all, what }: { readonly parts: readonly string[]; readonly all: number; readonly what: string }): JSX.Element {
  if (all > 0) {
    return <p class="empty">None of {figure(all)} matches the search.</p>;
  }
  if (obstacles(currentModel(), parts).length > 0) {
    return <p class="empty">No permission to read the {what}.</p>;
  }
  return <p class="empty">{isRead(currentModel(), parts) ? `No ${what}.` : `Loading ${what} …`}</p>;
}

/** Counts by health, as a bar and as buttons that filter. */
export function Tally({ of, label }: { readonly of: readonly Entity[]; readonly label: string }): JSX.Element | null {
  const counts = tally(of);
  const health = place.value.query["health"] ?? "";
  if (counts.length === 0) {
    return null;
  }
  return (
    <div class="tally">
      <div class="bar" aria-hidden="true">
        {counts.map(([one, count]) => (
          <span key={one} class={`is-${HEALTH_CLASSES[one]}`} style={{ flexGrow: count }} />
        ))}
      </div>
      <div class="chips" role="group" aria-label={`${label} by health`}>
        {counts.map(([one, count]) => (
          <button key={one} type="button" class="chip" aria-pressed={health === one} onClick={() => set({ health: health === one ? "" : one }, "replace")}>
            <Glyph health={one as Health} decorative />
            {figure(count)} {one}
          </button>
        ))}
      </div>
    </div>
  );
}

export function Problem({ error, retry }: { readonly error: Refused; readonly retry?: () => void }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <Glyph health="Degraded" decorative />
      <p>
        <strong>{error.message}</strong>
        {error.remedy === "" ? null : <> – <Message text={error.remedy} /></>}
      </p>
      {retry === undefined ? null : (
        <button type="button" onClick={retry}>
          Retry
        </button>
      )}
    </div>
  );
}

/** A link to an entity, in its view, with its panel open. */
export function EntityLink({ entity }: { readonly entity: Entity }): JSX.Element {
  const kind = entity.kind === "part" ? entity.kind : KIND_WORDS[entity.kind];
  return (
    <PlaceLink to={leadingTo(place.value, idOf(entity))} class="entity-link">
      <Glyph health={entity.health} />
      <span class="kind">{kind}</span> {called(entity)}
    </PlaceLink>
  );
}

/** A link within the page, with a complete address that can be copied. */
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

/** `count`: number of objects, not shown if they are forbidden or not read yet. */
export function Heading({ children, count, parts = [] }: { readonly children: ComponentChildren; readonly count?: number; readonly parts?: readonly string[] }): JSX.Element {
  const unknown = count === 0 && (obstacles(currentModel(), parts).length > 0 || !isRead(currentModel(), parts));
  return (
    <h2>
      {children}
      {count === undefined || unknown ? null : <span class="count">{figure(count)}</span>}
    </h2>
  );
}
