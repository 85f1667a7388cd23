/* The login. The token is sent to the server once, and not stored here. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { asRefused } from "../live/api.ts";
import type { Refused } from "../live/api.ts";
import { failure, logIn, retry } from "../live/store.ts";
import { Problem } from "../ui/parts.tsx";

export function LogIn(): JSX.Element {
  const [error, setError] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const send = async (form: HTMLFormElement): Promise<void> => {
    const token = String(new FormData(form).get("token") ?? "").trim();
    if (token === "") {
      return;
    }
    setBusy(true);
    setError(null);
    form.reset();
    try {
      await logIn(token);
    } catch (failed) {
      setError(asRefused(failed));
      setBusy(false);
      form.querySelector("input")?.focus();
    }
  };
  return (
    <main class="login" id="main">
      <h1>Trellis</h1>
      <p>Log in with a bearer token of the cluster. The console shows the objects that its account can read.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send(event.currentTarget);
        }}
      >
        <label>
          Token
          <input name="token" type="password" autocomplete="off" autofocus required spellcheck={false} disabled={busy} />
        </label>
        <button type="submit" disabled={busy}>
          {busy ? "Logging in …" : "Log in"}
        </button>
      </form>
      {error === null ? null : <Problem error={error} />}
      <p class="secondary">
        Create a token: <code>kubectl create token ACCOUNT</code>
      </p>
    </main>
  );
}

export function Failed(): JSX.Element | null {
  return failure.value === null ? null : (
    <main class="login" id="main">
      <h1>Trellis</h1>
      <Problem error={failure.value} retry={retry} />
    </main>
  );
}
