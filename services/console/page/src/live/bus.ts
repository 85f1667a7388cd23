/* Events on the bus for the views that show them: one stream with their filters, open while such a view is.

   In: a query. Out: signals. Invariants: browsers have six connections to a host, so there is one stream of events at a
   time; the list is bounded. */

import { signal } from "@preact/signals";

import type { BusEvent } from "../model/entities.ts";
import { mergeEvents } from "../model/events.ts";
import { Connection } from "./connection.ts";
import type { ConnectionState } from "./connection.ts";

export const events = signal<readonly BusEvent[]>([]);
export const eventsConnection = signal<ConnectionState>({ is: "connecting" });
/** The reason that the bus is unavailable, from the server. */
export const unavailable = signal<string | null>(null);
/** Permissions that the account lacks for this stream. */
export const lacking = signal<readonly string[]>([]);
/** Whether the buffer of the server overflowed, so that events are missing. */
export const gap = signal(false);

let stream: Connection | null = null;
let open = "";
let users = 0;

/** Receive events of a query until the returned function is called. */
export function subscribe(query: string): () => void {
  users += 1;
  if (stream === null || open !== query) {
    stream?.close();
    open = query;
    listen(query);
  }
  return () => {
    users -= 1;
    // The next view can use the same stream: close it after this frame.
    setTimeout(() => {
      if (users === 0) {
        stream?.close();
        stream = null;
        events.value = [];
      }
    });
  };
}

function listen(query: string): void {
  let mark = "";
  let waiting: BusEvent[] = [];
  let frame = 0;
  let fresh = true;
  gap.value = false;
  const draw = (): void => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      events.value = mergeEvents(fresh ? [] : events.value, waiting);
      waiting = [];
      fresh = false;
    });
  };
  const own: Connection = new Connection({
    address: () => `/api/events/stream?${query}${mark === "" ? "" : `&last=${mark}`}`,
    message(message) {
      if (own !== stream) {
        return;
      }
      const data = JSON.parse(message.data) as BusEvent & { unavailable?: string | null; lacking?: readonly string[] };
      if (message.event === "event") {
        mark = message.id;
        waiting.push(data);
      } else if (message.event === "gap") {
        gap.value = true;
      } else if (message.event === "hello") {
        unavailable.value = data.unavailable ?? null;
        lacking.value = data.lacking ?? [];
      }
      draw();
    },
    state(state) {
      eventsConnection.value = state;
    },
    loggedOut() {
      // The stream of the model handles this.
    },
  });
  stream = own;
  draw();
}
