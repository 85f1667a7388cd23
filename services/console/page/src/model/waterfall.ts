/* A trace as bars on one axis of time.

   Pure. In: a trace. Out: start and length of each bar, as shares of the whole. */

import type { Span, Trace } from "./entities.ts";

export interface Bar {
  readonly span: Span;
  /** From 0 to 1. */
  readonly left: number;
  readonly width: number;
  readonly offset: number;
  readonly took: number;
}

export interface Waterfall {
  /** In milliseconds. */
  readonly took: number;
  readonly began: number;
  readonly bars: readonly Bar[];
  readonly services: readonly string[];
  readonly errors: number;
}

const NS_PER_MS = 1e6;

export function waterfall(trace: Trace): Waterfall {
  const began = trace.spans.reduce((least, span) => Math.min(least, span.start), Infinity);
  const ended = trace.spans.reduce((most, span) => Math.max(most, span.end, span.start), -Infinity);
  const whole = Math.max(ended - began, 1);
  const bars = trace.spans.map((span) => ({
    span,
    left: (span.start - began) / whole,
    width: Math.max(span.end - span.start, 0) / whole,
    offset: (span.start - began) / NS_PER_MS,
    took: Math.max(span.end - span.start, 0) / NS_PER_MS,
  }));
  return {
    took: trace.spans.length === 0 ? 0 : (ended - began) / NS_PER_MS,
    began: trace.spans.length === 0 ? 0 : began / NS_PER_MS,
    bars,
    services: [...new Set(trace.spans.map((span) => span.service))],
    errors: trace.spans.filter((span) => span.error !== null).length,
  };
}
