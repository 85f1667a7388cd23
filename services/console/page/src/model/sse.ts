/* Parser of server-sent events; unlike `EventSource` it reports all received data.

   Pure, with state. In: pieces of text. Out: messages. Source: HTML standard, "Interpreting an event stream". The
   reader of a browser hides comments, and so the heartbeats that show a live connection. */

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

  /** Add a piece of text, and return the messages that are complete now. */
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
