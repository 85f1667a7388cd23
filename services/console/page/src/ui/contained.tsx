/* Keeps what cannot be drawn to itself: a view that fails leaves the page beside it, the other views and the way there.

   In: what is drawn, where somebody is. Out: it, or that it failed; tried again in another place, and when asked. */

import { Component } from "preact";
import type { ComponentChildren, JSX } from "preact";

import { Refused } from "../live/api.ts";
import { Problem } from "./parts.tsx";

interface Properties {
  readonly at: string;
  readonly children: ComponentChildren;
}

export class Contained extends Component<Properties, { readonly error: string | null }> {
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
      <Problem error={new Refused(0, `this cannot be shown: ${error}`, "the rest of the page is as it was", 0)} again={() => this.setState({ error: null })} />
    );
  }
}
