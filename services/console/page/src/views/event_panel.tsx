/* One event: its fields, its object, its trace. In: its key. */

import type { JSX } from "preact";

import { events } from "../live/bus.ts";
import { currentModel, place, set } from "../live/store.ts";
import { keyOf } from "../model/events.ts";
import { leadingTo, viewed } from "../model/place.ts";
import { age, dated, outcome } from "../model/format.ts";
import { EntityLink, PlaceLink } from "../ui/parts.tsx";
import { Panel } from "../ui/panel.tsx";
import { seen } from "./events.tsx";

export function EventPanel({ id }: { readonly id: string }): JSX.Element {
  const event = events.value.find((one) => keyOf(one) === id) ?? seen.get(id);
  const close = (): void => set({ event: "" });
  if (event === undefined) {
    return (
      <Panel title={id} kind="event" close={close}>
        <p class="empty">Not among the shown events.</p>
      </Panel>
    );
  }
  const about = event.about === null ? undefined : currentModel().get(event.about);
  return (
    <Panel title={event.type} kind={event.stream === "dead-letters" ? "dead letter" : event.stream === "lattice" ? "lattice event" : "event"} close={close} key={id}>
      <dl class="fields">
        <Field name="Time">{`${dated(event.time)} (${age(event.time)} ago)`}</Field>
        {outcome(event) === "" ? null : <Field name="Result">{outcome(event)}</Field>}
        <Field name="Object">
          {about !== undefined ? <EntityLink entity={about} /> : event.about === null ? "none" : <PlaceLink to={leadingTo(place.value, event.about)}>{event.about}</PlaceLink>}
        </Field>
        {event.lattice === null ? null : <Field name="Lattice">{event.lattice}</Field>}
        {event.source ? <Field name="Source">{event.source}</Field> : null}
        <Field name="Sequence">{String(event.sequence)}</Field>
        {event.trace === null ? null : (
          <Field name="Trace">
            <PlaceLink to={viewed(place.value, "traces", { trace: event.trace })}>{event.trace}</PlaceLink>
          </Field>
        )}
      </dl>
      <p class="links">
        {event.about === null ? null : <PlaceLink to={viewed(place.value, "events", { object: event.about })}>Events of this object</PlaceLink>}
        {event.trace === null ? null : <PlaceLink to={viewed(place.value, "events", { trace: event.trace })}>Events of this trace</PlaceLink>}
        {event.stream === "dead-letters" ? <PlaceLink to={viewed(place.value, "dead-letters", { "dead-letter": String(event.sequence) })}>Dead letter</PlaceLink> : null}
      </p>
      {event.cut ? <p class="secondary">Its data is too long to show here.</p> : null}
      {event.unreadable ? <p class="secondary">The message is not a valid event.</p> : null}
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
