/* What keys do, and whether single ones do anything. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { putShortcuts, shortcuts } from "../live/appearance.ts";

const KEYS = [
  ["/", "search in this view"],
  ["1 … 6", "go to a view, from the left"],
  ["Tab", "go on to the next list, field or link"],
  ["↑ ↓ ← →", "go through a list or the map; Home, End, Page up and down, too"],
  ["Enter", "open what is chosen"],
  ["Escape", "close what is open beside the view"],
  ["?", "show this"],
] as const;

export function Keys({ close }: { readonly close: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) {
        before.focus();
      }
    };
  }, []);
  return (
    <dialog ref={dialog} class="keys" aria-labelledby="keys-title" onClose={close} onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      <h2 id="keys-title">Keys</h2>
      <dl>
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input type="checkbox" checked={shortcuts.value} onChange={(event) => putShortcuts(event.currentTarget.checked)} /> single keys are shortcuts
      </label>
      <p>
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </p>
    </dialog>
  );
}
