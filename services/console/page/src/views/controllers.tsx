/* WasmControllers: memory, wakes, faults. In: the model, `sort` of the address. */

import type { JSX } from "preact";

import { currentModel, place, set } from "../live/store.ts";
import { idOf } from "../model/entities.ts";
import type { Controller } from "../model/entities.ts";
import { controllerRows, milliseconds } from "../model/selectors.ts";
import { bytes, called, cause, duration, figure } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { Heading, Lacking, Empty, shownNow, Tally } from "../ui/parts.tsx";
import { Virtual } from "../ui/virtual.tsx";

const PARTS = ["controllers"];
const FIGURES = [
  ["resident", "memory", "resident memory", (one: Controller) => bytes(one.resident_bytes)],
  ["disk", "disk", "snapshot on disk", (one: Controller) => bytes(one.disk_bytes)],
  ["wakes", "wakes", "number of wakes", (one: Controller) => figure(one.wakes)],
  ["p99", "wake p99", "wake duration, 99th percentile", (one: Controller) => duration(milliseconds(one.wake_p99))],
  ["calls", "calls", "calls", (one: Controller) => figure(one.calls)],
  ["traps", "traps", "number of traps", (one: Controller) => figure(one.traps)],
] as const;

export function ControllersView(): JSX.Element {
  const all = currentModel().all("controller");
  const sort = place.value.query["sort"] ?? "";
  const rows = controllerRows(currentModel(), shownNow(), sort);
  const selected = place.value.query["select"] ?? "";
  const most = all.reduce((sum, one) => Math.max(sum, one.resident_bytes ?? 0), 1);
  return (
    <section class="controllers" aria-label="Controllers">
      <header>
        <Heading count={all.length} parts={PARTS}>Controllers</Heading>
        <p class="secondary totals">
          {bytes(all.reduce((sum, one) => sum + (one.resident_bytes ?? 0), 0))} resident · {bytes(all.reduce((sum, one) => sum + (one.disk_bytes ?? 0), 0))} on disk ·{" "}
          {figure(all.reduce((sum, one) => sum + (one.wakes ?? 0), 0))} wakes · figures are up to a minute old
        </p>
        <Tally of={all} label="Controllers" />
        <div class="chips" role="group" aria-label="Sort">
          <button type="button" class="chip" aria-pressed={sort === ""} onClick={() => set({ sort: "" }, "replace")}>
            by name
          </button>
          {FIGURES.map(([name, title]) => (
            <button key={name} type="button" class="chip" aria-pressed={sort === name} onClick={() => set({ sort: name }, "replace")}>
              by {title}
            </button>
          ))}
        </div>
      </header>
      <Lacking parts={PARTS} />
      {rows.length === 0 ? <Empty parts={PARTS} all={all.length} what="controllers" /> : null}
      <div class="scrolled" data-scrolls>
        <Virtual
          items={rows}
          keyOf={idOf}
          label="Controllers"
          height={76}
          selected={selected}
          cell={(one, properties) => (
            <button type="button" class="controller" data-id={idOf(one)} aria-pressed={selected === idOf(one)} title={cause(one) || called(one)} onClick={() => set({ select: selected === idOf(one) ? "" : idOf(one) })} {...properties}>
              <span class="title">
                <Glyph health={one.health} /> <span class="name">{called(one)}</span> <span class="phase">{one.phase ?? "not reconciled yet"}</span>
                <span class="message">{one.problem ?? faultOf(one)}</span>
              </span>
              <span class="numbers">
                {FIGURES.map(([name, title, , read]) => (
                  <span key={name} class={`number number-${name}`}>
                    <span class="label">{title}</span> <span class="value">{read(one)}</span>
                    {name === "resident" ? (
                      <span class="meter" aria-hidden="true">
                        <span style={{ width: `${(100 * (one.resident_bytes ?? 0)) / most}%` }} />
                      </span>
                    ) : null}
                  </span>
                ))}
              </span>
            </button>
          )}
        />
      </div>
    </section>
  );
}

function faultOf(one: Controller): string {
  return one.last_fault === null ? "" : `last fault: ${[one.last_fault.kind, one.last_fault.message].filter(Boolean).join(", ")}`;
}
