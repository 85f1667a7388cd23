/* Rollouts: the progress of each Shim, and the stage of each node. In: the model, `shim` and `stage` of the address. */

import type { JSX } from "preact";

import { currentModel, place, set } from "../live/store.ts";
import { idOf } from "../model/entities.ts";
import type { Shim } from "../model/entities.ts";
import { progress, rolloutRows } from "../model/selectors.ts";
import { cause, figure, HEALTH_CLASSES, STAGE_HEALTHS, STAGE_WORDS } from "../model/format.ts";
import { Glyph } from "../ui/glyph.tsx";
import { Heading, Lacking, Empty, shownNow } from "../ui/parts.tsx";
import { narrow } from "../ui/narrow.ts";
import { Message } from "../ui/message.tsx";
import { Virtual } from "../ui/virtual.tsx";

const PARTS = ["shims", "nodes", "jobs", "installers", "ledgers"];

export function RolloutsView(): JSX.Element {
  const shims = currentModel().all("shim");
  const wanted = place.value.query["shim"] ?? "";
  const shim = shims.find((one) => one.name === wanted) ?? (wanted === "" ? shims[0] : undefined);
  return (
    <div class="rollouts">
      <section class="rollout-list" aria-label="Shims">
        <Heading count={shims.length} parts={["shims"]}>Rollouts</Heading>
        <Lacking parts={PARTS} />
        {shims.length === 0 ? <Empty parts={["shims"]} all={0} what="Shims" /> : null}
        <ul class="cards">
          {shims.map((one) => (
            <li key={one.name}>
              <Card shim={one} chosen={one === shim} />
            </li>
          ))}
        </ul>
      </section>
      {shim === undefined ? (
        wanted === "" ? null : <p class="empty">Shim {wanted} not found, or no permission to read it.</p>
      ) : (
        <Nodes shim={shim} />
      )}
    </div>
  );
}

function Card({ shim, chosen }: { readonly shim: Shim; readonly chosen: boolean }): JSX.Element {
  const { counts, all, done } = progress(shim);
  const percent = Math.floor(done * 100);
  return (
    <article class="card" data-chosen={chosen}>
      <button type="button" class="card-title" aria-pressed={chosen} onClick={() => set({ shim: shim.name, stage: "", select: "" })}>
        <Glyph health={shim.health} />
        <span class="name">{shim.name}</span>
        <span class="phase">{shim.phase}</span>
      </button>
      <div class="progress" role="progressbar" aria-label={`Rollout of ${shim.name}`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent} aria-valuetext={`${shim.counts.Updated ?? 0} of ${all} nodes updated`}>
        {counts.map(([stage, count]) => (
          <span key={stage} class={`is-${HEALTH_CLASSES[STAGE_HEALTHS[stage]]}`} style={{ flexGrow: count }} />
        ))}
      </div>
      <p class="figures">
        {all === 0 ? null : <strong>{percent} %</strong>}
        {counts.map(([stage, count]) => (
          <span key={stage} class="figure">
            <Glyph health={STAGE_HEALTHS[stage]} decorative /> {figure(count)} {STAGE_WORDS[stage]}
          </span>
        ))}
        {all === 0 ? <span>its nodeSelector matches no node</span> : null}
      </p>
      {shim.message === null ? null : <p class="secondary"><Message text={cause(shim)} /></p>}
      <p>
        <button type="button" class="text-button" onClick={() => set({ shim: shim.name, select: idOf(shim) })}>
          Details
        </button>
      </p>
    </article>
  );
}

function Nodes({ shim }: { readonly shim: Shim }): JSX.Element {
  const stage = place.value.query["stage"] ?? "";
  const selected = place.value.query["select"] ?? "";
  const rows = rolloutRows(currentModel(), shim.name, { text: shownNow().text, stage });
  const { counts, all } = progress(shim);
  return (
    <section class="rollout-nodes" aria-label={`Nodes of ${shim.name}`}>
      <header>
        <Heading count={rows.length}>Nodes of {shim.name}</Heading>
        <div class="chips" role="group" aria-label="Nodes by stage">
          {counts.map(([one, count]) => (
            <button key={one} type="button" class="chip" aria-pressed={stage === one} onClick={() => set({ stage: stage === one ? "" : one }, "replace")}>
              <Glyph health={STAGE_HEALTHS[one]} decorative /> {figure(count)} {STAGE_WORDS[one]}
            </button>
          ))}
        </div>
      </header>
      <div class="scrolled" data-scrolls>
        {rows.length === 0 ? <Empty parts={["nodes"]} all={all} what="nodes of this Shim" /> : null}
        <Virtual
          items={rows}
          keyOf={(row) => idOf(row.node)}
          label={`Nodes of ${shim.name}`}
          height={narrow.value ? 44 : 34}
          selected={selected}
          cell={({ node, on }, properties) => (
            <button type="button" class="rollout-node" data-id={idOf(node)} aria-pressed={selected === idOf(node)} onClick={() => set({ select: selected === idOf(node) ? "" : idOf(node) })} {...properties}>
              <Glyph health={STAGE_HEALTHS[on.stage]} decorative />
              <span class="name">{node.name}</span>
              <span class="stage">{STAGE_WORDS[on.stage]}</span>
              <span class="secondary">{on.attempt === null ? "" : `attempt ${on.attempt}`}</span>
              <span class="message">{on.message ?? ""}</span>
            </button>
          )}
        />
      </div>
    </section>
  );
}
