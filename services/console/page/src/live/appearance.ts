/* Theme (light, dark, system) and keyboard shortcuts: settings of this browser, and the only data stored in it. */

import { signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const theme = signal<Theme>(read("theme", THEMES, "auto"));
export const shortcuts = signal(read("shortcuts", ["on", "off"] as const, "on") === "on");

export function putTheme(next: Theme): void {
  theme.value = next;
  document.documentElement.dataset["theme"] = next;
  keep("theme", next);
}

export function putShortcuts(on: boolean): void {
  shortcuts.value = on;
  keep("shortcuts", on ? "on" : "off");
}

function read<T extends string>(name: string, known: readonly T[], otherwise: T): T {
  try {
    const found = localStorage.getItem(`trellis.${name}`);
    return known.find((one) => one === found) ?? otherwise;
  } catch {
    return otherwise; // storage is disabled
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`trellis.${name}`, value);
  } catch {
    // The setting is lost with the next page load.
  }
}
