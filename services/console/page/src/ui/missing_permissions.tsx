/* Permissions that an account lacks for messages of the bus: forbidden is not empty. */

import type { JSX } from "preact";

import { lacking } from "../live/bus.ts";
import { Glyph } from "./glyph.tsx";

/** `permissions`: missing permissions, as the server names them; `of`: the messages that they are for. */
export function MissingPermissions({ permissions, of }: { readonly permissions: readonly string[]; readonly of: string }): JSX.Element | null {
  return permissions.length === 0 ? null : (
    <ul class="lacking">
      <li>
        <Glyph health="Degraded" decorative />
        <span>
          <strong>No permission to get {permissions.map((one) => one.replace(/^get /, "")).join(", ")}</strong> – {of} that require one of these are not shown, unless a Role of their namespace grants it.
        </span>
      </li>
    </ul>
  );
}

/** The same for the stream of events. */
export function MissingEventPermissions({ of }: { readonly of: string }): JSX.Element | null {
  return <MissingPermissions permissions={lacking.value} of={of} />;
}

/** Return the text of an empty list. */
export function emptyText(what: string): string {
  return lacking.value.length > 0 ? `No ${what} that this account can read.` : `No ${what}.`;
}
