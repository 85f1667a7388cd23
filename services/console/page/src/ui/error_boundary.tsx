/* Contains rendering errors: a view that fails does not affect the rest of the page.

   In: the content, the address. Out: the content, or the error; retried with another address, and on request. */

import { Component } from "preact";
import type { ComponentChildren, JSX } from "preact";

import { Refused } from "../live/api.ts";
import { Problem } from "./parts.tsx";

interface Properties {
  readonly at: string;
  readonly children: ComponentChildren;
}

export class ErrorBoundary extends Component<Properties, { readonly error: string | null }> {
  override state = { error: null };

  static override getDerivedStateFromError(error: unknown): { error: string } {
    return { error: String(error) };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error);
  }

  override componentDidUpdate(before: Properties): void {
    if (this.state.error !== null && before.at !== this.props.at) {
      this.setState({ error: null });
    }
  }

  override render(): JSX.Element {
    const { error } = this.state;
    return error === null ? (
      <>{this.props.children}</>
    ) : (
      <Problem error={new Refused(0, `cannot render this view: ${error}`, "the rest of the page is not affected", 0)} retry={() => this.setState({ error: null })} />
    );
  }
}
