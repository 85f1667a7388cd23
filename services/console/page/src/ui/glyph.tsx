/* State of health as a shape, distinguishable without colour. The word is next to it, or read by screen readers. */

import type { JSX } from "preact";

import type { Health } from "../model/entities.ts";
import { HEALTH_CLASSES } from "../model/format.ts";

const SHAPES: Readonly<Record<Health, JSX.Element>> = {
  Healthy: (
    <>
      <circle class="fill" cx="8" cy="8" r="7" />
      <path class="cut" d="M4.8 8.2l2.2 2.3 4.2-4.8" />
    </>
  ),
  Progressing: (
    <>
      <circle class="line" cx="8" cy="8" r="6" />
      <path class="fill" d="M8 2a6 6 0 0 1 0 12z" />
    </>
  ),
  Suspended: (
    <>
      <circle class="line" cx="8" cy="8" r="6" />
      <path class="line" d="M8 4.6V8l2.4 1.6" />
    </>
  ),
  Degraded: (
    <>
      <path class="fill" d="M8 .8l7.4 13.6H.6z" />
      <path class="cut" d="M8 5.6v4.2M8 11.6v1.2" />
    </>
  ),
  Missing: (
    <>
      <path class="line" d="M8 1.5l6.6 12H1.4z" />
      <path class="line" d="M8 5.8v3.6M8 10.8v1" />
    </>
  ),
  "Not opted in": <path class="line" d="M2.5 2.5h11v11h-11z" />,
  Unknown: (
    <>
      <path class="line" d="M8 1l7 7-7 7-7-7z" />
      <path class="line" d="M8 5v3.4M8 10.2v1" />
    </>
  ),
};

export function Glyph({ health, decorative = false }: { readonly health: Health; readonly decorative?: boolean }): JSX.Element {
  return (
    <span class={`glyph is-${HEALTH_CLASSES[health]}`}>
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
        {SHAPES[health]}
      </svg>
      {decorative ? null : <span class="visually-hidden">{health}</span>}
    </span>
  );
}
