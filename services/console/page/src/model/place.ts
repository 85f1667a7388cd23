/* The place in the page: view, filters and selection, all in the address.

   Pure. In: an address. Out: a place, and the address of one. Invariant: names are in the query and not in the path,
   as the server returns the page only for paths without a dot. */

export const VIEWS = ["map", "rollouts", "events", "traces", "controllers", "dead-letters"] as const;
export type View = (typeof VIEWS)[number];

export interface Place {
  readonly view: View;
  /** Parameters of the query, without empty values. */
  readonly query: Readonly<Record<string, string>>;
}

/** Parameters that remain when another view is opened: the namespaces are common to all views. */
const LASTING = ["namespaces"];

export function placeOf(path: string, search: string): Place {
  const name = path.replace(/^\/+|\/+$/g, "");
  const query: Record<string, string> = {};
  for (const [key, value] of new URLSearchParams(search)) {
    if (value !== "") {
      query[key] = value;
    }
  }
  return { view: (VIEWS as readonly string[]).includes(name) ? (name as View) : "map", query };
}

export function addressOf(place: Place): string {
  const query = new URLSearchParams();
  for (const key of Object.keys(place.query).sort()) {
    const value = place.query[key];
    if (value !== undefined && value !== "") {
      query.set(key, value);
    }
  }
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%2C", ",").replaceAll("%3A", ":");
  return `${place.view === "map" ? "/" : `/${place.view}`}${text === "" ? "" : `?${text}`}`;
}

/** Return a place with changed parameters; an empty value removes a parameter. */
export function changed(place: Place, values: Readonly<Record<string, string>>): Place {
  const query: Record<string, string> = { ...place.query, ...values };
  for (const key of Object.keys(query)) {
    if (query[key] === "") {
      delete query[key];
    }
  }
  return { view: place.view, query };
}

/** Return another view, with the common parameters. */
export function viewed(place: Place, view: View, values: Readonly<Record<string, string>> = {}): Place {
  const kept = Object.fromEntries(LASTING.flatMap((key) => (place.query[key] === undefined ? [] : [[key, place.query[key]]])));
  return changed({ view, query: kept }, values);
}

/** Return the place with the panel of an entity open: in the current view if that shows it, else in its own. */
export function leadingTo(place: Place, id: string): Place {
  const kind = id.slice(0, id.indexOf("/"));
  if (kind === "shim") {
    return viewed(place, "rollouts", { shim: id.slice("shim/".length), select: id });
  }
  if (kind === "controller") {
    return viewed(place, "controllers", { select: id });
  }
  const stays = place.view === "map" || place.view === "events" || place.view === "dead-letters" || (place.view === "rollouts" && kind === "node");
  return stays ? changed(place, { select: id, "dead-letter": "", event: "" }) : viewed(place, "map", { select: id });
}
