/* Signal for narrow windows such as phones, in which rows have two lines. */

import { signal } from "@preact/signals";

const query = matchMedia("(max-width: 640px)");

export const narrow = signal(query.matches);
query.addEventListener("change", () => {
  narrow.value = query.matches;
});
