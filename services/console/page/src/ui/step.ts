/* Keyboard navigation in a list of cells. Pure. */

/** Return the item that a key moves to. */
export function step(key: string, at: number, columns: number, count: number): number | undefined {
  const to = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + columns,
    ArrowUp: at - columns,
    Home: 0,
    End: count - 1,
    PageDown: Math.min(count - 1, at + 10 * columns),
    PageUp: Math.max(0, at - 10 * columns),
  }[key];
  return to === undefined || to < 0 || to >= count ? undefined : to;
}
