/* Requests to the server. In: addresses. Out: documents, or the errors of the server. Called by the store and views. */

export class Refused extends Error {
  readonly status: number;
  readonly remedy: string;
  /** Delay of the next attempt in seconds. */
  readonly after: number;

  constructor(status: number, what: string, remedy: string, after: number) {
    super(what);
    this.status = status;
    this.remedy = remedy;
    this.after = after;
  }
}

/** Maximum delay of a response in seconds: proxies request an hour in an outage of seconds. */
const LONGEST_WAIT = 60;

/** Return the seconds of a Retry-After header, 0 if it is not a number: a NaN delay would be none. */
export function waitOf(header: string | null): number {
  const seconds = Number(header ?? 0);
  return seconds > 0 ? Math.min(seconds, LONGEST_WAIT) : 0;
}

/** Return the error of an unexpected response. */
export async function refusalOf(answer: Response): Promise<Refused> {
  let what = `the console answered ${answer.status}`;
  let remedy = "";
  try {
    const body = (await answer.json()) as { error?: { what?: string; do?: string } };
    what = body.error?.what ?? what;
    remedy = body.error?.do ?? "";
  } catch {
    // The response is from an intermediary such as a proxy.
  }
  return new Refused(answer.status, what, remedy, waitOf(answer.headers.get("Retry-After")));
}

/** Return an error in the form that the page shows; without a response the console is unreachable. */
export function asRefused(error: unknown): Refused {
  return error instanceof Refused ? error : new Refused(0, "the console cannot be reached", "check that it runs", 0);
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
