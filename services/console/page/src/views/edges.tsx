/* Lines on the map from the selected object to its related objects in view, and the number of those out of view.

   In: the steps from the selection. Out: a layer over the lanes with one path for each related cell, for sighted users
   only: cells and the panel name the relations. Called by the map. Invariants: all positions are read in one frame and
   before anything is written; a change of scroll positions, sizes or data is drawn with the next frame. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { origins, outOfView, route } from "../model/edges.ts";
import type { Box, Steps } from "../model/edges.ts";
import { counted, figure } from "../model/format.ts";

interface Line {
  readonly to: string;
  readonly path: string;
  readonly direct: boolean;
}

/** Indexes of the first and the last row in view of each lane, empty while no lines are drawn. */
const inView = signal<readonly { readonly first: number; readonly last: number }[]>([]);

export function Edges({ selected, steps }: { readonly selected: string; readonly steps: Steps }): JSX.Element {
  const layer = useRef<SVGSVGElement>(null);
  const [lines, put] = useState<readonly Line[]>([]);
  useEffect(() => {
    const lanes = layer.current?.parentElement;
    if (lanes === null || lanes === undefined) {
      return undefined;
    }
    let frame = 0;
    const soon = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        const { boxes, ranges } = measure(lanes, selected, steps);
        put((was) => unlessEqual(was, linesOf(boxes, steps)));
        inView.value = unlessEqual(inView.value, ranges);
      });
    };
    const sizes = new ResizeObserver(soon);
    const changes = new MutationObserver(soon);
    for (const lane of lanes.querySelectorAll(".lane")) {
      sizes.observe(lane);
      changes.observe(lane, { childList: true, characterData: true, attributeFilter: ["style"], subtree: true });
    }
    document.addEventListener("scroll", soon, { capture: true, passive: true });
    soon();
    return () => {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      changes.disconnect();
      document.removeEventListener("scroll", soon, { capture: true });
    };
  }, [selected, steps]);
  useEffect(() => () => void (inView.value = []), []);
  return (
    <svg ref={layer} class="edges" aria-hidden="true" focusable="false">
      {lines.map((one) => (
        <path key={one.to} data-to={one.to} class={one.direct ? "edge" : "edge indirect"} d={one.path} />
      ))}
    </svg>
  );
}

/** The number of related rows of a lane, and of those that are out of view. */
export function OutOfView({ lane, ids, steps }: { readonly lane: number; readonly ids: readonly string[]; readonly steps: Steps }): JSX.Element | null {
  const range = inView.value[lane];
  if (range === undefined) {
    return null;
  }
  const { all, above, below } = outOfView(ids, steps, range.first, range.last);
  const parts = [above === 0 ? "" : `${figure(above)} above`, below === 0 ? "" : `${figure(below)} below`].filter(Boolean);
  return all === 0 ? null : <footer class="out-of-view">{counted(all, "related resource")}: {parts.length === 0 ? "all in view" : parts.join(", ")}</footer>;
}

/** Read the positions of the selected and the related cells whose middle is in view, and the rows in view of each lane. */
function measure(lanes: Element, selected: string, steps: Steps): { readonly boxes: ReadonlyMap<string, Box>; readonly ranges: { first: number; last: number }[] } {
  const origin = lanes.getBoundingClientRect();
  const boxes = new Map<string, Box>();
  const ranges = [...lanes.querySelectorAll(".lane")].map((lane, number) => {
    const range = { first: Infinity, last: -Infinity };
    const list = lane.querySelector(".lane-body")?.getBoundingClientRect() ?? origin;
    const laneRight = Math.round(lane.getBoundingClientRect().right - origin.left);
    for (const cell of lane.querySelectorAll<HTMLElement>("[data-id]")) {
      const box = cell.getBoundingClientRect();
      const middle = (box.top + box.bottom) / 2;
      const at = cell.dataset["at"];
      // A Shim has no index: it is above the list.
      if (at !== undefined && (middle < list.top || middle > list.bottom)) {
        continue;
      }
      if (at !== undefined) {
        range.first = Math.min(range.first, Number(at));
        range.last = Math.max(range.last, Number(at));
      }
      const id = cell.dataset["id"] ?? "";
      if (id === selected || steps.has(id)) {
        const [left, right] = [Math.round(box.left - origin.left), Math.round(box.right - origin.left)];
        const [top, bottom] = [Math.round(box.top - origin.top), Math.round(box.bottom - origin.top)];
        boxes.set(id, { left, right, top, bottom, lane: number, laneRight, listTop: Math.round(list.top - origin.top) });
      }
    }
    return range;
  });
  return { boxes, ranges };
}

function linesOf(boxes: ReadonlyMap<string, Box>, steps: Steps): Line[] {
  return [...boxes].flatMap(([to, box]) => {
    const { from, direct } = origins(steps, to, (id) => boxes.has(id));
    const paths = new Set(from.flatMap((id) => boxes.get(id) ?? []).map((other) => route(other, box)));
    return paths.size === 0 ? [] : [{ to, path: [...paths].join(""), direct }];
  });
}

function unlessEqual<T>(was: T, now: T): T {
  return JSON.stringify(was) === JSON.stringify(now) ? was : now;
}
