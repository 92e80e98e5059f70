/** A web application in a real Chromium, at another address than the relayer that lists it. */

import assert from "node:assert/strict";
import test from "node:test";

import { openPage } from "./browser.ts";

const relayer = process.env["MEMRELAY_TEST_URL"] ?? "";
const closed = process.env["MEMRELAY_TEST_OTHER_URL"] ?? "";
const port = Number(process.env["MEMRELAY_TEST_PAGE_PORT"]);

test("a page of a listed origin has a memory", { timeout: 120_000 }, async () => {
  const query = `?${new URLSearchParams({ relayer, closed })}`;
  const { passed, failures } = await openPage({ script: "elsewhere.js", query, port });
  assert.deepEqual(failures, []);
  assert.equal(passed, 1);
});
