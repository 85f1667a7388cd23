/* Entry point of the page: reads the session, and renders. */

import { render } from "preact";
import type { JSX } from "preact";

import { putTheme, theme } from "./live/appearance.ts";
import { begin, stage } from "./live/store.ts";
import { Shell } from "./ui/shell.tsx";
import { Failed, LogIn } from "./views/login.tsx";

function Page(): JSX.Element | null {
  switch (stage.value) {
    case "loading":
      return null;
    case "login":
      return <LogIn />;
    case "failed":
      return <Failed />;
    case "in":
      return <Shell />;
  }
}

putTheme(theme.value);
const root = document.getElementById("page");
if (root !== null) {
  render(<Page />, root);
}
void begin();
