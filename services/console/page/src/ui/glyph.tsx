/* A state as a shape: told apart without colour. The word stands beside it, or is what a screen reader says. */

import type { JSX } from "preact";

import type { State } from "../model/entities.ts";
import { STATE_WORDS } from "../model/words.ts";

const SHAPES: Readonly<Record<State, JSX.Element>> = {
  well: (
    <>
      <circle class="fill" cx="8" cy="8" r="7" />
      <path class="cut" d="M4.8 8.2l2.2 2.3 4.2-4.8" />
    </>
  ),
  working: (
    <>
      <circle class="line" cx="8" cy="8" r="6" />
      <path class="fill" d="M8 2a6 6 0 0 1 0 12z" />
    </>
  ),
  waiting: (
    <>
      <circle class="line" cx="8" cy="8" r="6" />
      <path class="line" d="M8 4.6V8l2.4 1.6" />
    </>
  ),
  troubled: (
    <>
      <path class="fill" d="M8 .8l7.4 13.6H.6z" />
      <path class="cut" d="M8 5.6v4.2M8 11.6v1.2" />
    </>
  ),
  off: <path class="line" d="M2.5 2.5h11v11h-11z" />,
  unknown: (
    <>
      <path class="line" d="M8 1l7 7-7 7-7-7z" />
      <path class="line" d="M8 5v3.4M8 10.2v1" />
    </>
  ),
};

export function Glyph({ state, silent = false }: { readonly state: State; readonly silent?: boolean }): JSX.Element {
  return (
    <span class={`glyph is-${state}`}>
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
        {SHAPES[state]}
      </svg>
      {silent ? null : <span class="unseen">{STATE_WORDS[state]}</span>}
    </span>
  );
}
