/* Rows of one height; only visible ones are in the document.

   In: items, the height of a row, the minimum width of a cell, the selected item. Out: a list with keyboard navigation
   by arrow keys, scrolled to each new selection.
   Invariants: the number of rendered rows depends on the window and not on the number of items; one cell is in the tab
   order, and keeps the focus while its neighbours change. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { step } from "./step.ts";

/** Rows that are rendered out of sight, and the step of their number, so that not every scroll event renders. */
const BEYOND = 4;
const TOGETHER = 4;

export interface CellProps {
  /** Place in the tab order, and index of the item. */
  readonly tabIndex: number;
  readonly "data-at": number;
}

interface Properties<T> {
  readonly items: readonly T[];
  readonly keyOf: (item: T) => string;
  readonly label: string;
  readonly height: number;
  /** Minimum width of a cell in pixels; without it a row has one cell. */
  readonly width?: number;
  readonly selected?: string;
  readonly cell: (item: T, properties: CellProps) => JSX.Element;
}

interface Seen {
  readonly columns: number;
  readonly first: number;
  readonly last: number;
}

export function Virtual<T>({ items, keyOf, label, height, width, selected, cell }: Properties<T>): JSX.Element {
  const list = useRef<HTMLUListElement>(null);
  const [seen, put] = useState<Seen>({ columns: 1, first: 0, last: 30 });
  const [current, setCurrent] = useState("");
  const wanted = useRef(-1);

  const look = (): void => {
    const box = list.current?.getBoundingClientRect();
    if (box === undefined) {
      return;
    }
    const columns = width === undefined ? 1 : Math.max(1, Math.floor(box.width / width));
    const first = Math.max(0, Math.floor((-box.top / height - BEYOND) / TOGETHER) * TOGETHER);
    const last = Math.max(first, Math.ceil(((innerHeight - box.top) / height + BEYOND) / TOGETHER) * TOGETHER);
    put((was) => (was.columns === columns && was.first === first && was.last === last ? was : { columns, first, last }));
  };

  // The position depends on the content above; a read after each render would cause a second layout of everything.
  useLayoutEffect(look, [items.length, height, width]);
  useEffect(() => {
    // For any scrolling container and any width: once per frame.
    let frame = 0;
    const soon = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        look();
      });
    };
    const sizes = new ResizeObserver(soon);
    sizes.observe(list.current as Element);
    document.addEventListener("scroll", soon, { capture: true, passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      document.removeEventListener("scroll", soon, { capture: true });
      removeEventListener("resize", soon);
    };
  }, [height, width]);

  const rows = Math.ceil(items.length / seen.columns);
  const from = Math.min(seen.first, Math.max(0, rows - 1)) * seen.columns;
  const to = Math.min(items.length, (seen.last + 1) * seen.columns);
  const there = items.findIndex((item) => keyOf(item) === current);
  const selectedAt = selected === undefined || selected === "" ? -1 : items.findIndex((item) => keyOf(item) === selected);
  const tabbed = Math.max(there >= 0 ? there : selectedAt, 0);

  const focus = (index: number): void => {
    const found = list.current?.querySelector<HTMLElement>(`[data-at="${index}"]`);
    if (found) {
      wanted.current = -1;
      found.focus({ preventScroll: true });
      found.scrollIntoView({ block: "nearest" });
    }
  };
  useLayoutEffect(() => {
    if (wanted.current >= 0) {
      focus(wanted.current);
    }
  });

  // Scroll once per selection, as soon as its item is in the list, and once per number of columns, which moves items.
  const target = selectedAt < 0 ? "" : `${seen.columns} ${selected}`;
  useEffect(() => {
    if (target !== "") {
      scrollTo(list.current, Math.floor(selectedAt / seen.columns) * height, height);
    }
  }, [target]);

  const move = (event: KeyboardEvent): void => {
    const at = Number((event.target as HTMLElement).dataset["at"] ?? NaN);
    const to = Number.isNaN(at) || event.ctrlKey || event.metaKey || event.altKey ? undefined : step(event.key, at, seen.columns, items.length);
    const item = to === undefined ? undefined : items[to];
    if (to === undefined || item === undefined) {
      return;
    }
    event.preventDefault();
    setCurrent(keyOf(item));
    wanted.current = to;
    // A cell out of sight is not rendered yet: scroll to it first, then it gets the focus.
    scrollTo(list.current, Math.floor(to / seen.columns) * height, height);
    look();
    focus(to);
  };

  const cells: JSX.Element[] = [];
  for (let index = from; index < to; index += 1) {
    const item = items[index];
    if (item !== undefined) {
      cells.push(
        <li
          key={keyOf(item)}
          aria-setsize={items.length}
          aria-posinset={index + 1}
          style={{
            top: `${Math.floor(index / seen.columns) * height}px`,
            left: `${((index % seen.columns) * 100) / seen.columns}%`,
            width: `${100 / seen.columns}%`,
            height: `${height}px`,
          }}
        >
          {cell(item, { tabIndex: index === tabbed ? 0 : -1, "data-at": index })}
        </li>,
      );
    }
  }
  return (
    <ul
      ref={list}
      class="virtual"
      aria-label={label}
      style={{ height: `${rows * height}px` }}
      onKeyDown={move}
      onFocusIn={(event) => {
        const item = items[Number((event.target as HTMLElement).dataset["at"] ?? NaN)];
        if (item !== undefined) {
          setCurrent(keyOf(item));
        }
      }}
    >
      {cells}
    </ul>
  );
}

/** Scroll the container of the list until a row is visible. */
function scrollTo(list: HTMLElement | null, top: number, height: number): void {
  const parent = list?.closest<HTMLElement>("[data-scrolls]");
  if (list === null || list.getClientRects().length === 0) {
    return; // a narrow window does not show this list
  }
  const inner = parent !== null && parent !== undefined && parent.scrollHeight > parent.clientHeight && getComputedStyle(parent).overflowY !== "visible";
  const box = list.getBoundingClientRect();
  const edges = inner && parent ? parent.getBoundingClientRect() : { top: 64, bottom: innerHeight };
  const [from, to] = [box.top + top, box.top + top + height];
  const by = from < edges.top ? from - edges.top : to > edges.bottom ? to - edges.bottom : 0;
  if (by !== 0) {
    (inner && parent ? parent : document.scrollingElement)?.scrollBy(0, by);
  }
}
