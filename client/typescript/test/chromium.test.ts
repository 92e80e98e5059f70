/** Every vector of the project, in a real Chromium. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

import { openPage, PROGRAM } from "./browser.ts";

const FOLDER = new URL("../../../tests/vectors/", import.meta.url);
const names = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

function files(path: string): string | Buffer | null {
  if (path === "/vectors") return JSON.stringify(names);
  const name = decodeURIComponent(path.slice("/vectors/".length));
  return names.includes(name) ? readFileSync(new URL(name, FOLDER)) : null;
}

test(`every vector in ${PROGRAM}`, { timeout: 120_000 }, async () => {
  const { passed, failures } = await openPage({ script: "page.js", files });
  assert.deepEqual(failures, []);
  assert.equal(passed, names.length);
});
