/* The model of the page: the merged revisions of the server.

   In: hello and delta messages. Out: entities by id and by kind. Pure, with state.
   Invariants: a revision is applied as a whole or not at all, also if it consists of several messages and the last is
   missing; entities that a full `hello` drops remain until their replacement is complete. */

import { idOf } from "./entities.ts";
import type { ByKind, Entity } from "./entities.ts";

export interface Hello {
  readonly epoch: string;
  readonly full: boolean;
}

export interface Delta {
  readonly revision: number;
  readonly set: Readonly<Record<string, Entity>>;
  readonly deleted: readonly string[];
  readonly more: boolean;
}

const collator = new Intl.Collator("en", { numeric: true });

export class Model {
  /** The last id received, which tells the server the state of this page. */
  mark = "";
  revision = 0;
  #kinds = new Map<string, Map<string, Entity>>();
  #sorted = new Map<string, Entity[]>();
  #staged: Delta[] = [];
  #replacing = false;

  /** Start a stream; drop an incomplete revision of the former stream. */
  hello(hello: Hello): void {
    this.#staged = [];
    this.#replacing = hello.full;
    if (hello.full) {
      this.mark = "";
    }
  }

  /** Add a message of a revision; return whether it completes the revision, so that the page is to be drawn. */
  delta(delta: Delta, mark: string): boolean {
    this.#staged.push(delta);
    if (delta.more) {
      return false;
    }
    if (this.#replacing) {
      this.#kinds.clear();
      this.#sorted.clear();
      this.#replacing = false;
    }
    for (const one of this.#staged) {
      this.#apply(one);
    }
    this.#staged = [];
    this.mark = mark || this.mark;
    this.revision = delta.revision;
    return true;
  }

  /** Drop everything: the viewer or the namespaces have changed. */
  clear(): void {
    this.hello({ epoch: "", full: true });
    this.delta({ revision: 0, set: {}, deleted: [], more: false }, "");
  }

  get(id: string): Entity | undefined {
    return this.#kinds.get(kindOf(id))?.get(id);
  }

  /** All entities of a kind by name, with natural order of numbers; the same array until one of them changes. */
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
    for (const id of delta.deleted) {
      if (this.#kinds.get(kindOf(id))?.delete(id)) {
        touched.set(kindOf(id), true);
      }
    }
    for (const [kind, others] of touched) {
      this.#resort(kind, others);
    }
  }

  /** Invalidate `all`. To sort thousands of names lasts a frame, so it is done only after a change of names. */
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

