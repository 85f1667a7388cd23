/* What the page knows: the server's revisions, put together.

   In: hello and delta messages. Out: entities by id and by kind. Pure but for its own memory.
   Invariants: a revision is there whole or not at all, also when it came in several messages and the last was cut off;
   what is forgotten by a `hello` that is full is shown until what replaces it is there. */

import { idOf } from "./entities.ts";
import type { ByKind, Entity } from "./entities.ts";

export interface Hello {
  readonly epoch: string;
  readonly full: boolean;
}

export interface Delta {
  readonly revision: number;
  readonly set: Readonly<Record<string, Entity>>;
  readonly gone: readonly string[];
  readonly more: boolean;
}

const collator = new Intl.Collator("en", { numeric: true });

export class Model {
  /** The last mark that came, by which the server knows what this page has. */
  mark = "";
  revision = 0;
  #kinds = new Map<string, Map<string, Entity>>();
  #sorted = new Map<string, Entity[]>();
  #staged: Delta[] = [];
  #anew = false;

  /** A stream has begun; what was left unfinished by the one before is dropped. */
  hello(hello: Hello): void {
    this.#staged = [];
    this.#anew = hello.full;
    if (hello.full) {
      this.mark = "";
    }
  }

  /** Take a message of a revision; return whether that made it whole, so that there is something to draw. */
  delta(delta: Delta, mark: string): boolean {
    this.#staged.push(delta);
    if (delta.more) {
      return false;
    }
    if (this.#anew) {
      this.#kinds.clear();
      this.#sorted.clear();
      this.#anew = false;
    }
    for (const one of this.#staged) {
      this.#apply(one);
    }
    this.#staged = [];
    this.mark = mark || this.mark;
    this.revision = delta.revision;
    return true;
  }

  /** Forget everything: somebody else looks, or at other namespaces. */
  clear(): void {
    this.hello({ epoch: "", full: true });
    this.delta({ revision: 0, set: {}, gone: [], more: false }, "");
  }

  get(id: string): Entity | undefined {
    return this.#kinds.get(kindOf(id))?.get(id);
  }

  /** All of a kind by name, with numbers in names as numbers; the same array until one of them changes. */
  all<K extends keyof ByKind>(kind: K): readonly ByKind[K][] {
    let found = this.#sorted.get(kind);
    if (found === undefined) {
      found = [...(this.#kinds.get(kind)?.values() ?? [])].sort(
        (one, other) => collator.compare(one.name, other.name) || collator.compare(one.namespace ?? "", other.namespace ?? ""),
      );
      this.#sorted.set(kind, found);
    }
    return found as unknown as readonly ByKind[K][];
  }

  #apply(delta: Delta): void {
    const touched = new Map<string, boolean>();
    for (const [id, entity] of Object.entries(delta.set)) {
      const kind = kindOf(id);
      let known = this.#kinds.get(kind);
      if (known === undefined) {
        this.#kinds.set(kind, (known = new Map<string, Entity>()));
      }
      touched.set(kind, (touched.get(kind) ?? false) || !known.has(id));
      known.set(id, entity);
    }
    for (const id of delta.gone) {
      if (this.#kinds.get(kindOf(id))?.delete(id)) {
        touched.set(kindOf(id), true);
      }
    }
    for (const [kind, others] of touched) {
      this.#resort(kind, others);
    }
  }

  /** Have `all` answer anew. Sorting thousands of names costs a frame, so it is done only when there are other names. */
  #resort(kind: string, others: boolean): void {
    const before = this.#sorted.get(kind);
    if (others || before === undefined) {
      this.#sorted.delete(kind);
      return;
    }
    const known = this.#kinds.get(kind);
    this.#sorted.set(
      kind,
      before.map((entity) => known?.get(idOf(entity)) ?? entity),
    );
  }
}

function kindOf(id: string): string {
  return id.slice(0, id.indexOf("/"));
}

