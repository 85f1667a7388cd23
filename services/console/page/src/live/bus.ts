/* What is said on the bus, for the views that show it: open while one of them is, and for its filters alone.

   In: a query. Out: signals. Invariants: browsers have six connections to a host, so there is one stream of events at a
   time, and none where nothing shows it; what is kept is bounded. */

import { signal } from "@preact/signals";

import type { Happening } from "../model/entities.ts";
import { joined } from "../model/happenings.ts";
import { Line } from "./line.ts";
import type { LineState } from "./line.ts";

export const events = signal<readonly Happening[]>([]);
export const eventsLine = signal<LineState>({ is: "connecting" });
/** Why nothing comes from the bus, as the server says. */
export const away = signal<string | null>(null);
/** Whether more was said than the server keeps, so that some of it is missing. */
export const gap = signal(false);

let stream: Line | null = null;
let open = "";
let users = 0;

/** Hear events of a query until what is returned is called. */
export function hear(query: string): () => void {
  users += 1;
  if (stream === null || open !== query) {
    stream?.close();
    open = query;
    listen(query);
  }
  return () => {
    users -= 1;
    // Whoever comes next may want the same; after this frame nobody did.
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
  let waiting: Happening[] = [];
  let frame = 0;
  let fresh = true;
  gap.value = false;
  const draw = (): void => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      events.value = joined(fresh ? [] : events.value, waiting);
      waiting = [];
      fresh = false;
    });
  };
  const own: Line = new Line({
    address: () => `/api/events/stream?${query}${mark === "" ? "" : `&last=${mark}`}`,
    message(message) {
      if (own !== stream) {
        return;
      }
      const data = JSON.parse(message.data) as Happening & { away?: string | null };
      if (message.event === "event") {
        mark = message.id;
        waiting.push(data);
      } else if (message.event === "gap") {
        gap.value = true;
      } else if (message.event === "hello") {
        away.value = data.away ?? null;
      }
      draw();
    },
    state(state) {
      eventsLine.value = state;
    },
    loggedOut() {
      // The stream of the model is told the same, and shows it.
    },
  });
  stream = own;
  draw();
}
