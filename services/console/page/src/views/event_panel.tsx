/* One event: what it says, whose it is, the change that it belongs to. In: its key. */

import type { JSX } from "preact";

import { events } from "../live/bus.ts";
import { known, place, set } from "../live/store.ts";
import { keyOf } from "../model/happenings.ts";
import { leadingTo, viewed } from "../model/place.ts";
import { clock } from "../model/words.ts";
import { EntityLink, PlaceLink } from "../ui/parts.tsx";
import { Panel } from "../ui/panel.tsx";
import { seen } from "./events.tsx";

export function EventPanel({ id }: { readonly id: string }): JSX.Element {
  const event = events.value.find((one) => keyOf(one) === id) ?? seen.get(id);
  const close = (): void => set({ event: "" });
  if (event === undefined) {
    return (
      <Panel title={id} kind="event" close={close}>
        <p class="nothing">It is not among the events that are shown.</p>
      </Panel>
    );
  }
  const about = event.about === null ? undefined : known().get(event.about);
  return (
    <Panel title={event.type} kind={event.stream === "letters" ? "dead letter" : event.stream === "lattice" ? "lattice event" : "fact"} close={close} key={id}>
      <dl class="fields">
        <Field name="time">{clock(event.time)}</Field>
        <Field name="about">
          {about !== undefined ? <EntityLink entity={about} /> : event.about === null ? "nothing that has a name" : <PlaceLink to={leadingTo(place.value, event.about)}>{event.about}</PlaceLink>}
        </Field>
        {event.lattice === null ? null : <Field name="lattice">{event.lattice}</Field>}
        {event.source ? <Field name="from">{event.source}</Field> : null}
        <Field name="sequence">{String(event.sequence)}</Field>
        {event.trace === null ? null : (
          <Field name="trace">
            <PlaceLink to={viewed(place.value, "traces", { trace: event.trace })}>{event.trace}</PlaceLink>
          </Field>
        )}
      </dl>
      <p class="ways">
        {event.about === null ? null : <PlaceLink to={viewed(place.value, "events", { object: event.about })}>All about it</PlaceLink>}
        {event.trace === null ? null : <PlaceLink to={viewed(place.value, "events", { trace: event.trace })}>All of this change</PlaceLink>}
        {event.stream === "letters" ? <PlaceLink to={viewed(place.value, "letters", { letter: String(event.sequence) })}>The letter</PlaceLink> : null}
      </p>
      {event.cut ? <p class="soft">Its data is too long to be shown here.</p> : null}
      {event.unreadable ? <p class="soft">It is no event that can be read.</p> : null}
      {event.data === null || event.data === undefined ? null : <pre class="data">{JSON.stringify(event.data, null, 2)}</pre>}
    </Panel>
  );
}

function Field({ name, children }: { readonly name: string; readonly children: JSX.Element | string }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
