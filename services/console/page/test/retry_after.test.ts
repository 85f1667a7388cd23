/* Delays that a server requests: bounded, and never a value that a timer treats as no delay. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { waitOf } from "../src/live/api.ts";

const CASES: [string | null, number][] = [
  [null, 0],
  ["", 0],
  ["2", 2],
  ["60", 60],
  ["3600", 60],
  ["1e300", 60],
  ["Infinity", 60],
  ["-5", 0],
  ["NaN", 0],
  ["Wed, 21 Oct 2099 07:28:00 GMT", 0],
];

for (const [header, seconds] of CASES) {
  test(`Retry-After: ${header} is a delay of ${seconds} s`, () => {
    assert.equal(waitOf(header), seconds);
  });
}
