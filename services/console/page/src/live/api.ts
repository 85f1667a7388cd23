/* Asks the server. In: addresses. Out: documents, or what is wrong in the server's own words. Called by the store and views. */

export class Refused extends Error {
  readonly status: number;
  readonly todo: string;
  /** In seconds, when to try again. */
  readonly after: number;

  constructor(status: number, what: string, todo: string, after: number) {
    super(what);
    this.status = status;
    this.todo = todo;
    this.after = after;
  }
}

/** Seconds that an answer may ask to wait: proxies answer an hour in an outage of seconds. */
const LONGEST_WAIT = 60;

/** Return the seconds that a Retry-After asks for, 0 where it is no number: a wait without one would be none at all. */
export function waitOf(header: string | null): number {
  const seconds = Number(header ?? 0);
  return seconds > 0 ? Math.min(seconds, LONGEST_WAIT) : 0;
}

/** Return the error of an answer that is none of what was asked for. */
export async function refusalOf(answer: Response): Promise<Refused> {
  let what = `the console answered ${answer.status}`;
  let todo = "";
  try {
    const body = (await answer.json()) as { error?: { what?: string; do?: string } };
    what = body.error?.what ?? what;
    todo = body.error?.do ?? "";
  } catch {
    // Something between here and the console said it.
  }
  return new Refused(answer.status, what, todo, waitOf(answer.headers.get("Retry-After")));
}

/** Return an error as the page shows it; without an answer nobody was there. */
export function asRefused(error: unknown): Refused {
  return error instanceof Refused ? error : new Refused(0, "the console cannot be reached", "look whether it runs", 0);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, ...(signal === undefined ? {} : { signal }) });
  if (!answer.ok) {
    throw await refusalOf(answer);
  }
  return (await answer.json()) as T;
}

export async function post(path: string, body: unknown): Promise<void> {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) {
    throw await refusalOf(answer);
  }
}
