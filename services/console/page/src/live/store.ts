/* The state of the page: viewer, model, place. Only this module writes it; all views read it.

   In: the server's streams, the address. Out: signals. Invariants: changes are rendered once per frame, at any rate;
   the token of a login is sent and not stored; every place has an address. */

import { signal } from "@preact/signals";

import { Model } from "../model/model.ts";
import type { Delta, Hello } from "../model/model.ts";
import type { Session } from "../model/entities.ts";
import { addressOf, changed, placeOf, viewed } from "../model/place.ts";
import type { Place, View } from "../model/place.ts";
import { asRefused, get, post, Refused } from "./api.ts";
import { Connection } from "./connection.ts";
import type { ConnectionState } from "./connection.ts";

export const model = new Model();
/** Revision of the model: a component that reads the model reads this, and is rendered after each change. */
export const drawn = signal(0);
export const place = signal<Place>(placeOf(location.pathname, location.search));
export const session = signal<Session | null>(null);
/** State of the session: `loading` (unknown), `login`, `in`, or `failed`. */
export const stage = signal<"loading" | "login" | "in" | "failed">("loading");
export const failure = signal<Refused | null>(null);
export const connection = signal<ConnectionState>({ is: "connecting" });
/** True after the first complete revision. */
export const loaded = signal(false);

let stream: Connection | null = null;
/** True if a proxy authenticates viewers: the page has no login then. */
let proxied = false;
let frame = 0;

/** Return the model, and render the caller after each change. */
export function currentModel(): Model {
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

/** Read the session, and start. */
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

/** Read the session once more; a proxy shows its login when a page is loaded, and not for its requests. */
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

/** End the session; if the console is unreachable, the viewer is still logged in, and the thrown error states that. */
export async function logOut(): Promise<void> {
  await post("/api/session/end", {});
  loggedOut();
}

function loggedOut(): void {
  stream?.close();
  stream = null;
  session.value = null;
  model.clear();
  loaded.value = false;
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
  loaded.value = false;
  stream = new Connection({
    address: modelAddress,
    message(message) {
      if (message.event === "hello") {
        model.hello(JSON.parse(message.data) as Hello);
      } else if (message.event === "delta" && model.delta(JSON.parse(message.data) as Delta, message.id)) {
        draw();
      }
    },
    state(state) {
      connection.value = state;
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

/** Render the model with the next frame; a hidden page has no frames, and renders when it is visible. */
function draw(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    loaded.value = loaded.value || model.revision > 0;
    drawn.value += 1;
  });
}

export function reconnect(): void {
  stream?.reconnect();
}

addEventListener("popstate", () => {
  const before = place.value.query["namespaces"] ?? "";
  place.value = placeOf(location.pathname, location.search);
  if ((place.value.query["namespaces"] ?? "") !== before) {
    listen();
  }
});
