/** Every vector of the project, in Node. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

import { checkVector, operations } from "./vectors.ts";

const FOLDER = new URL("../../../tests/vectors/", import.meta.url);
const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

for (const name of files) {
  test(name, async () => {
    assert.equal(await checkVector(readFileSync(new URL(name, FOLDER), "utf8")), null);
  });
}

test("every operation has vectors", () => {
  const used = files.map(
    (name) => JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")).operation,
  );
  assert.deepEqual([...new Set(used)].sort(), [...operations].sort());
});
