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
const HIDDEN_MS = 10_000;
const HEARTBEAT_MS = 15_000;
const RETRY_MS = 500;
const RETRY_MAX_MS = 15_000;

export type ConnectionState =
  | { readonly is: "connecting" }
  | { readonly is: "live" }
  | { readonly is: "lost"; readonly since: number; readonly why: string; readonly remedy: string };

export interface Handlers {
  /** The address, with the last id of the page. */
  address(): string;
  message(message: Message): void;
  state(state: ConnectionState): void;
  /** The session is not valid any more. */
  loggedOut(): void;
}

export class Connection {
  #handlers: Handlers;
  #closed = false;
  #abort = new AbortController();
  #wake: () => void = () => undefined;
  #since = 0;
  #tries = 0;
  #suspended = false;
  #hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  #reconnecting = false;
  /** Time of the last data, by a clock that continues while the machine sleeps. */
  #lastData = Date.now();
  #listeners = new AbortController();

  constructor(handlers: Handlers) {
    this.#handlers = handlers;
    const { signal } = this.#listeners;
    // After a change of the network or a sleep the connection is lost, and timers detect that late.
    addEventListener("online", () => this.reconnect(), { signal });
    document.addEventListener("visibilitychange", () => this.#onVisibility(), { signal });
    this.#onVisibility();
    void this.#run();
  }

  close(): void {
    this.#closed = true;
    this.#listeners.abort();
    clearTimeout(this.#hiddenTimer);
    this.#abort.abort();
    this.#wake();
  }

  /** Reconnect now. */
  reconnect(): void {
    this.#tries = 0;
    this.#reconnecting = true;
    this.#abort.abort();
    this.#wake();
  }

  /** Close the stream after the tab was hidden for a while; reopen it, with missed changes, when it is visible. */
  #onVisibility(): void {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) {
      this.#hiddenTimer = setTimeout(() => {
        this.#suspended = true;
        this.#abort.abort();
      }, HIDDEN_MS);
    } else if (this.#suspended) {
      this.#suspended = false;
      this.#wake();
    } else if (Date.now() - this.#lastData > 1.5 * HEARTBEAT_MS) {
      this.reconnect();
    }
  }

  async #run(): Promise<void> {
    this.#handlers.state({ is: "connecting" });
    while (!this.#closed) {
      if (this.#suspended) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      let wait: number;
      try {
        wait = await this.#receive();
      } catch (error) {
        if (this.#closed) {
          return;
        }
        wait = this.#onFailure(asRefused(error));
      }
      if (wait < 0) {
        this.close();
        this.#handlers.loggedOut();
        return;
      }
      await this.#sleep(wait);
    }
  }

  /** Receive until the stream ends; return the milliseconds until the next attempt, less than 0 for none. */
  async #receive(): Promise<number> {
    const abort = new AbortController();
    this.#abort = abort;
    this.#reconnecting = false;
    let alarm = setTimeout(() => abort.abort(), SILENCE_MS);
    const reader = new Reader();
    try {
      const answer = await fetch(this.#handlers.address(), { headers: { Accept: "text/event-stream" }, signal: abort.signal });
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
        this.#lastData = Date.now();
        clearTimeout(alarm);
        alarm = setTimeout(() => abort.abort(), SILENCE_MS);
        this.#onData();
        for (const message of reader.take(value)) {
          if (message.event === "bye") {
            return this.#onBye((JSON.parse(message.data) as { reason: string }).reason);
          }
          this.#handlers.message(message);
        }
      }
    } catch (error) {
      if ((this.#suspended || this.#reconnecting) && !this.#closed) {
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

  #onData(): void {
    if (this.#since !== 0 || this.#tries === 0) {
      this.#handlers.state({ is: "live" });
    }
    this.#since = 0;
    this.#tries = 1;
  }

  #onBye(reason: string): number {
    if (reason === "login") {
      return -1;
    }
    if (reason === "stopping") {
      return this.#onFailure(new Refused(0, "the console is shutting down", "", 1));
    }
    return RETRY_MS / 5;
  }

  #onFailure(error: Refused): number {
    this.#since = this.#since || Date.now();
    this.#handlers.state({ is: "lost", since: this.#since, why: error.message, remedy: error.remedy });
    const spread = Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** Math.min(this.#tries, 6)) * (0.5 + Math.random() / 2);
    this.#tries += 1;
    return Math.max(spread, error.after * 1000);
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
