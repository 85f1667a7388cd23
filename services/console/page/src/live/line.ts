/* Connection to the server: one stream of events, reopened whenever it ends.

   In: an address, a handler of messages. Out: messages, and the state of the connection. Called by the store and the
   views of events. Invariants: no data for 30 s means a lost connection (heartbeats arrive every 15 s); without a valid
   session the page shows the login and does not retry; retries have jitter, so that a console that restarts does not
   receive all at once; a hidden tab closes the stream, as browsers have six connections to a host for all tabs, and as
   a stream uses memory. Why not EventSource: it hides heartbeats and the status of the response. */

import { asRefused, Refused, refusalOf } from "./api.ts";
import { Reader } from "../model/sse.ts";
import type { Message } from "../model/sse.ts";

const SILENCE_MS = 30_000;
const UNSEEN_MS = 10_000;
const HEARTBEAT_MS = 15_000;
const AGAIN_MS = 500;
const MOST_MS = 15_000;

export type LineState =
  | { readonly is: "connecting" }
  | { readonly is: "live" }
  | { readonly is: "lost"; readonly since: number; readonly why: string; readonly todo: string };

export interface Heard {
  /** The address, with the last id of the page. */
  address(): string;
  message(message: Message): void;
  state(state: LineState): void;
  /** The session is not valid any more. */
  loggedOut(): void;
}

export class Line {
  #heard: Heard;
  #closed = false;
  #abort = new AbortController();
  #wake: () => void = () => undefined;
  #since = 0;
  #tries = 0;
  #rests = false;
  #unseen: ReturnType<typeof setTimeout> | undefined;
  #anew = false;
  /** Time of the last data, by a clock that continues while the machine sleeps. */
  #came = Date.now();
  #over = new AbortController();

  constructor(heard: Heard) {
    this.#heard = heard;
    const { signal } = this.#over;
    // After a change of the network or a sleep the connection is lost, and timers detect that late.
    addEventListener("online", () => this.again(), { signal });
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    this.#look();
    void this.#run();
  }

  close(): void {
    this.#closed = true;
    this.#over.abort();
    clearTimeout(this.#unseen);
    this.#abort.abort();
    this.#wake();
  }

  /** Reconnect now. */
  again(): void {
    this.#tries = 0;
    this.#anew = true;
    this.#abort.abort();
    this.#wake();
  }

  /** Close the stream after the tab was hidden for a while; reopen it, with missed changes, when it is visible. */
  #look(): void {
    clearTimeout(this.#unseen);
    if (document.hidden) {
      this.#unseen = setTimeout(() => {
        this.#rests = true;
        this.#abort.abort();
      }, UNSEEN_MS);
    } else if (this.#rests) {
      this.#rests = false;
      this.#wake();
    } else if (Date.now() - this.#came > 1.5 * HEARTBEAT_MS) {
      this.again();
    }
  }

  async #run(): Promise<void> {
    this.#heard.state({ is: "connecting" });
    while (!this.#closed) {
      if (this.#rests) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      let wait: number;
      try {
        wait = await this.#listen();
      } catch (error) {
        if (this.#closed) {
          return;
        }
        wait = this.#failed(asRefused(error));
      }
      if (wait < 0) {
        this.close();
        this.#heard.loggedOut();
        return;
      }
      await this.#pause(wait);
    }
  }

  /** Receive until the stream ends; return the milliseconds until the next attempt, less than 0 for none. */
  async #listen(): Promise<number> {
    const abort = new AbortController();
    this.#abort = abort;
    this.#anew = false;
    let alarm = setTimeout(() => abort.abort(), SILENCE_MS);
    const reader = new Reader();
    try {
      const answer = await fetch(this.#heard.address(), { headers: { Accept: "text/event-stream" }, signal: abort.signal });
      if (answer.status === 401) {
        return -1;
      }
      if (!answer.ok || answer.body === null) {
        throw await refusalOf(answer);
      }
      const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await pieces.read();
        if (done) {
          throw new Refused(0, "the connection was closed", "", 0);
        }
        this.#came = Date.now();
        clearTimeout(alarm);
        alarm = setTimeout(() => abort.abort(), SILENCE_MS);
        this.#live();
        for (const message of reader.take(value)) {
          if (message.event === "bye") {
            return this.#bye((JSON.parse(message.data) as { reason: string }).reason);
          }
          this.#heard.message(message);
        }
      }
    } catch (error) {
      if ((this.#rests || this.#anew) && !this.#closed) {
        return 0;
      }
      if (abort.signal.aborted && !this.#closed) {
        throw new Refused(0, "no data for 30 s", "", 0);
      }
      throw error;
    } finally {
      clearTimeout(alarm);
      abort.abort();
    }
  }

  #live(): void {
    if (this.#since !== 0 || this.#tries === 0) {
      this.#heard.state({ is: "live" });
    }
    this.#since = 0;
    this.#tries = 1;
  }

  #bye(reason: string): number {
    if (reason === "login") {
      return -1;
    }
    if (reason === "stopping") {
      return this.#failed(new Refused(0, "the console is shutting down", "", 1));
    }
    return AGAIN_MS / 5;
  }

  #failed(error: Refused): number {
    this.#since = this.#since || Date.now();
    this.#heard.state({ is: "lost", since: this.#since, why: error.message, todo: error.todo });
    const spread = Math.min(MOST_MS, AGAIN_MS * 2 ** Math.min(this.#tries, 6)) * (0.5 + Math.random() / 2);
    this.#tries += 1;
    return Math.max(spread, error.after * 1000);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
