/* A field of a filter, which stands in the address once it is left or Enter is pressed.

   Invariant: what is half typed stays, however often what is around it is drawn anew; only another address replaces it. */

import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { place, set } from "../live/store.ts";

/** `closes`: what of the address has no meaning any more with another filter. */
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
      {/* `change`, not `input`: each is asked of the server, and half a name is none. */}
      <input ref={input} name={name} placeholder={example} spellcheck={false} autocomplete="off" onChange={(event) => set({ [name]: event.currentTarget.value.trim(), ...(closes === undefined ? {} : { [closes]: "" }) })} />
    </label>
  );
}
