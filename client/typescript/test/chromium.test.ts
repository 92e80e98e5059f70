/** Every vector of the project, in a real Chromium: a page on loopback, as a person opens it. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const PROGRAM = process.env["CHROMIUM"] ?? "chromium";
const FOLDER = new URL("../../../tests/vectors/", import.meta.url);
const names = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
const PAGE = "<!doctype html><meta charset=utf-8><title>vectors</title><script src=/page.js></script>";

interface Result {
  readonly passed: number;
  readonly failures: readonly string[];
}

function answer(path: string): [string, string | Buffer] | null {
  if (path === "/") return ["text/html", PAGE];
  if (path === "/page.js") return ["text/javascript", readFileSync(new URL("page.js", import.meta.url))];
  if (path === "/vectors") return ["application/json", JSON.stringify(names)];
  const name = decodeURIComponent(path.slice("/vectors/".length));
  return names.includes(name) ? ["application/json", readFileSync(new URL(name, FOLDER))] : null;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text;
}

test(`every vector in ${PROGRAM}`, { timeout: 120_000 }, async () => {
  let told: (result: Result) => void;
  const result = new Promise<Result>((resolve) => (told = resolve));
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    if (request.method === "POST") told(JSON.parse(await bodyOf(request)) as Result);
    const found = answer(request.url ?? "");
    response.writeHead(found ? 200 : 404, { "content-type": found?.[0] ?? "text/plain" });
    response.end(found?.[1]);
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const profile = mkdtempSync(join(tmpdir(), "memrelay-chromium-"));
  const { port } = server.address() as AddressInfo;
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  const browser = spawn(PROGRAM, [...flags, `--user-data-dir=${profile}`, `http://127.0.0.1:${port}/`], {
    stdio: "ignore",
  });
  const ended = new Promise<never>((_, fail) => {
    browser.once("error", fail);
    browser.once("exit", (code) => fail(new Error(`${PROGRAM} ended with ${code}`)));
  });
  try {
    const { passed, failures } = await Promise.race([result, ended]);
    assert.deepEqual(failures, []);
    assert.equal(passed, names.length);
  } finally {
    ended.catch(() => undefined);
    const gone = new Promise((resolve) => browser.once("exit", resolve));
    if (browser.exitCode === null && browser.kill()) await gone;
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
});
