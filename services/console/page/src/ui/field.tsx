/* A field of a filter, written to the address when it loses the focus or on Enter.

   Invariant: rendering keeps incomplete input; only another address replaces it. */

import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { place, set } from "../live/store.ts";

/** `closes`: the parameter of the address that another filter invalidates. */
export function FilterField({ name, label, example, closes }: { readonly name: string; readonly label: string; readonly example: string; readonly closes?: string }): JSX.Element {
  const value = place.value.query[name] ?? "";
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    if (input.current !== null) {
      input.current.value = value;
    }
  }, [value]);
  return (
    <label>
      <span>{label}</span>
      {/* `change`, not `input`: each change is a request to the server, and half a name matches nothing. */}
      <input ref={input} name={name} placeholder={example} spellcheck={false} autocomplete="off" onChange={(event) => set({ [name]: event.currentTarget.value.trim(), ...(closes === undefined ? {} : { [closes]: "" }) })} />
    </label>
  );
}
