/* A sentence of the server's, in which commands stand between backticks. */

import type { JSX } from "preact";

export function Said({ text }: { readonly text: string }): JSX.Element {
  const parts = text.split("`");
  // An odd number of backticks is none of ours: as it came.
  return parts.length % 2 === 0 ? <>{text}</> : <>{parts.map((part, at) => (at % 2 === 0 ? part : <code key={at}>{part}</code>))}</>;
}
