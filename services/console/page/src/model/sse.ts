/* Server-sent events as text: what `EventSource` does not tell is told here, that anything came at all.

   Pure but for its own memory. In: pieces of text as they come. Out: messages. Source: HTML standard, "Interpreting an
   event stream". A browser's own reader hides comments, and so the heartbeats by which a silence is known. */

export interface Message {
  readonly event: string;
  readonly data: string;
  readonly id: string;
}

export class Reader {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id = "";

  /** Take a piece, and return the messages that it made whole. */
  take(piece: string): Message[] {
    const found: Message[] = [];
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.#data.length > 0) {
          found.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
        }
        this.#event = "";
        this.#data = [];
        this.#id = "";
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      if (name === "event") {
        this.#event = value;
      } else if (name === "data") {
        this.#data.push(value);
      } else if (name === "id") {
        this.#id = value;
      }
    }
    return found;
  }
}
