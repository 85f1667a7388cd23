/* A text of the server with commands in backticks. */

import type { JSX } from "preact";

export function Message({ text }: { readonly text: string }): JSX.Element {
  const parts = text.split("`");
  // An odd number of backticks is not markup.
  return parts.length % 2 === 0 ? <>{text}</> : <>{parts.map((part, at) => (at % 2 === 0 ? part : <code key={at}>{part}</code>))}</>;
}
