/* The page's one state: who looks, what is known, where he is. Written here alone, read by everything that draws.

   In: the server's streams, the address. Out: signals. Invariants: what comes is drawn once a frame, however much it is;
   the token of a log-in is sent and kept nowhere; every place has an address. */

import { signal } from "@preact/signals";

import { Model } from "../model/model.ts";
import type { Delta, Hello } from "../model/model.ts";
import type { Session } from "../model/entities.ts";
import { addressOf, changed, placeOf, viewed } from "../model/place.ts";
import type { Place, View } from "../model/place.ts";
import { asRefused, get, post, Refused } from "./api.ts";
import { Line } from "./line.ts";
import type { LineState } from "./line.ts";

export const model = new Model();
/** Counts up when there is something to draw: whoever reads the model reads this. */
export const drawn = signal(0);
export const place = signal<Place>(placeOf(location.pathname, location.search));
export const session = signal<Session | null>(null);
/** What there is: `asking` who looks, `login`, `in`, or `failed`. */
export const stage = signal<"asking" | "login" | "in" | "failed">("asking");
export const failure = signal<Refused | null>(null);
export const line = signal<LineState>({ is: "connecting" });
/** Whether a whole revision has come since the page was opened. */
export const begun = signal(false);

let stream: Line | null = null;
/** Whether a proxy says who looks: there is no log-in here then. */
let proxied = false;
let frame = 0;

/** Return the model, and have whoever asked drawn anew when it changes. */
export function known(): Model {
  void drawn.value;
  return model;
}

export function go(next: Place, how: "push" | "replace" = "push"): void {
  const before = place.value.query["namespaces"] ?? "";
  const address = addressOf(next);
  if (address !== `${location.pathname}${location.search}`) {
    history[how === "push" ? "pushState" : "replaceState"](null, "", address);
  }
  place.value = next;
  if ((next.query["namespaces"] ?? "") !== before) {
    listen();
  }
}

export function set(values: Readonly<Record<string, string>>, how: "push" | "replace" = "push"): void {
  go(changed(place.value, values), how);
}

export function open(view: View, values: Readonly<Record<string, string>> = {}): void {
  go(viewed(place.value, view, values));
}

export function hrefOf(view: View, values: Readonly<Record<string, string>> = {}): string {
  return addressOf(viewed(place.value, view, values));
}

/** Ask who looks, and begin. */
export async function begin(): Promise<void> {
  try {
    session.value = await get<Session>("/api/session");
    proxied = session.value.auth === "proxy";
    stage.value = "in";
    listen();
  } catch (error) {
    const refused = asRefused(error);
    if (refused.status === 401) {
      loggedOut();
    } else {
      failure.value = refused;
      stage.value = "failed";
    }
  }
}

/** Try again to see who looks; a proxy shows its log-in to a page that is loaded, and not to what that asks. */
export function retry(): void {
  if (proxied) {
    location.reload();
  } else {
    void begin();
  }
}

export async function logIn(token: string): Promise<void> {
  await post("/api/session", { token });
  await begin();
}

/** End the session; whoever could not reach the console is logged in still, and is told so by what is thrown. */
export async function logOut(): Promise<void> {
  await post("/api/session/end", {});
  loggedOut();
}

function loggedOut(): void {
  stream?.close();
  stream = null;
  session.value = null;
  model.clear();
  begun.value = false;
  stage.value = proxied ? "failed" : "login";
  failure.value = proxied ? new Refused(401, "the session of the proxy has ended", "log in there", 0) : null;
}

/** Open the stream of the model, for the namespaces of the address. */
function listen(): void {
  stream?.close();
  if (stage.value !== "in") {
    return;
  }
  model.clear();
  begun.value = false;
  stream = new Line({
    address: modelAddress,
    message(message) {
      if (message.event === "hello") {
        model.hello(JSON.parse(message.data) as Hello);
      } else if (message.event === "delta" && model.delta(JSON.parse(message.data) as Delta, message.id)) {
        draw();
      }
    },
    state(state) {
      line.value = state;
    },
    loggedOut,
  });
  draw();
}

function modelAddress(): string {
  const query = new URLSearchParams();
  const namespaces = place.value.query["namespaces"] ?? "";
  if (namespaces !== "") {
    query.set("namespaces", namespaces);
  }
  if (model.mark !== "") {
    query.set("last", model.mark);
  }
  return `/api/stream${query.size > 0 ? `?${query}` : ""}`;
}

/** Have the model drawn with the next frame; a page that is not seen has none, and draws when it is. */
function draw(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    begun.value = begun.value || model.revision > 0;
    drawn.value += 1;
  });
}

export function again(): void {
  stream?.again();
}

addEventListener("popstate", () => {
  const before = place.value.query["namespaces"] ?? "";
  place.value = placeOf(location.pathname, location.search);
  if ((place.value.query["namespaces"] ?? "") !== before) {
    listen();
  }
});
