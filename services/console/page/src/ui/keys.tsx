/* Keyboard shortcuts, and the setting for single keys. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { putShortcuts, shortcuts } from "../live/appearance.ts";

const KEYS = [
  ["/", "search in this view"],
  ["1 … 6", "open a view"],
  ["Tab", "move to the next list, field or link"],
  ["↑ ↓ ← →", "move in a list or on the map; also Home, End, Page Up and Page Down"],
  ["Enter", "open the selected item"],
  ["Escape", "close the panel"],
  ["?", "show keyboard shortcuts"],
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
      <h2 id="keys-title">Keyboard shortcuts</h2>
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
        <input type="checkbox" checked={shortcuts.value} onChange={(event) => putShortcuts(event.currentTarget.checked)} /> enable single-key shortcuts
      </label>
      <p>
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </p>
    </dialog>
  );
}
