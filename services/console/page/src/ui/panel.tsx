/* The panel next to a view. It takes the focus when it opens, and returns it when it closes. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Panel({ title, kind, close, children }: { readonly title: string; readonly kind: string; readonly close: () => void; readonly children: ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const covers = matchMedia("(max-width: 1100px)").matches;
    if (covers) {
      // It covers the view: the keyboard continues in it.
      heading.current?.focus();
    }
    return () => {
      const inside = document.activeElement === document.body || heading.current?.closest("aside")?.contains(document.activeElement);
      if (inside && before instanceof HTMLElement && before.isConnected) {
        before.focus({ preventScroll: true });
      }
    };
  }, []);
  return (
    <aside class="panel" aria-label={`${kind} ${title}`}>
      <header>
        <div>
          <p class="kind">{kind}</p>
          <h2 tabIndex={-1} ref={heading}>
            {title}
          </h2>
        </div>
        <button type="button" class="close" onClick={close} aria-label="Close (Escape)">
          ✕
        </button>
      </header>
      <div class="panel-body" tabIndex={0} role="region" aria-label={`Details of ${title}`}>
        {children}
      </div>
    </aside>
  );
}
