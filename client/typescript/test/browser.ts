/** A page on loopback in a real Chromium, as a person opens it; the page posts its result. */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const PROGRAM = process.env["CHROMIUM"] ?? "chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];

/** What a page posts. */
export interface Result {
  readonly passed: number;
  readonly failures: readonly string[];
}

/** What a page is served: its bundled script, and more by path. */
export interface Page {
  readonly script: string;
  readonly files?: (path: string) => string | Buffer | null;
  readonly query?: string;
  readonly port?: number;
}

/** Opens a page, and returns what it posts. */
export async function openPage(page: Page): Promise<Result> {
  let told: (result: Result) => void;
  const result = new Promise<Result>((resolve) => (told = resolve));
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    if (request.method === "POST") told(JSON.parse(await bodyOf(request)) as Result);
    const found = answer(page, new URL(request.url ?? "/", "http://localhost").pathname);
    const type = found?.type ?? "text/plain";
    response.writeHead(found ? 200 : 404, { "content-type": type }).end(found?.body);
  });
  await new Promise<void>((ready) => server.listen(page.port ?? 0, "127.0.0.1", ready));
  const profile = mkdtempSync(join(tmpdir(), "memrelay-chromium-"));
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/${page.query ?? ""}`;
  const browser = spawn(PROGRAM, [...FLAGS, `--user-data-dir=${profile}`, url], {
    stdio: "ignore",
  });
  const ended = new Promise<never>((_, fail) => {
    browser.once("error", fail);
    browser.once("exit", (code) => fail(new Error(`${PROGRAM} ended with ${code}`)));
  });
  try {
    return await Promise.race([result, ended]);
  } finally {
    ended.catch(() => undefined);
    const gone = new Promise((resolve) => browser.once("exit", resolve));
    if (browser.exitCode === null && browser.kill()) await gone;
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

function answer(page: Page, path: string): { type: string; body: string | Buffer } | null {
  if (path === "/") {
    const body = "<!doctype html><meta charset=utf-8><script type=module src=/page.js></script>";
    return { type: "text/html", body };
  }
  if (path === "/page.js") {
    const body = readFileSync(new URL(page.script, import.meta.url));
    return { type: "text/javascript", body };
  }
  const body = page.files?.(path) ?? null;
  return body === null ? null : { type: "application/json", body };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text;
}
