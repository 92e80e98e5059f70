/** The bundle for a browser: what a page loads, compressed. Of nothing that only Node has. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { gzipSync } from "node:zlib";

const BYTES_MAX = 60_000;

test(`a browser loads ${BYTES_MAX} bytes at most`, (context) => {
  const bundle = readFileSync(new URL("memrelay.js", import.meta.url));
  const compressed = gzipSync(bundle, { level: 9 }).length;
  context.diagnostic(`${bundle.length} bytes, ${compressed} compressed`);
  assert.ok(compressed <= BYTES_MAX, `${compressed} bytes`);
});

test("the built package loads, and names what the bundle names", async () => {
  const built = Object.keys(await import(new URL("../dist/index.js", import.meta.url).href));
  const bundled = Object.keys(await import(new URL("memrelay.js", import.meta.url).href));
  assert.deepEqual(built.sort(), bundled.sort());
  assert.ok(built.includes("Client"));
  const apart = await import(new URL("../dist/verification/verifying.js", import.meta.url).href);
  assert.deepEqual(Object.keys(apart), ["verifyAccount"]);
});
