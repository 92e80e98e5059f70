/** Webhooks of a real relayer, whose address is in MEMRELAY_TEST_URL, told to a server that is here. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import test, { type TestContext } from "node:test";

import {
  ConfigError,
  Invalid,
  NotAllowed,
  Client,
  toBase64,
  verifyWebhook,
  WEBHOOK_EVENTS,
} from "../src/index.ts";
import { foundAccount } from "./accounts.ts";

/** One request as it came. */
interface Told {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

test("an account's webhook is told, and its receiver believes the relayer alone", async (context) => {
  const { url, next } = await listen(context);
  const { client, profile } = await foundAccount("sealed");
  const made = await client.putWebhook(url, { events: ["memory.written"] });
  assert.deepEqual([made.active, made.events], [true, ["memory.written"]]);
  const secret = made.secret!;
  const { id } = await client.remember("Anna prefers tea.");
  const told = await next();
  const event = verifyWebhook(told.headers, told.body, secret);
  assert.deepEqual([event.type, event.ids], ["memory.written", [id]]);
  assert.equal(event.account_id, client.accountId);
  assert.deepEqual(verifyWebhook(new Headers(flat(told)), told.body.toString(), secret), event);
  refuses("webhook.signature", () => verifyWebhook(told.headers, `${told.body} `, secret));
  const other = `whsec_${toBase64(new Uint8Array(32))}`;
  refuses("webhook.signature", () => verifyWebhook(told.headers, told.body, other));
  for (const nowMs of [Date.now() - 400_000, Date.now() + 400_000]) {
    refuses("webhook.time", () => verifyWebhook(told.headers, told.body, secret, { nowMs }));
  }
  const { "webhook-id": _, ...rest } = flat(told);
  refuses("webhook.headers", () => verifyWebhook(rest, told.body, secret));
  for (const none of ["", "whsec_", "whsec_YWJj", "*"]) {
    assert.throws(() => verifyWebhook(told.headers, told.body, none), ConfigError);
  }
  const agent = await client.addKey({ namespaces: ["team"] });
  const agents = new Client({ ...profile, private_key: agent.identity!.seedHex() });
  await assert.rejects(agents.webhooks(), NotAllowed);
});

test("a webhook is changed, tried, listed and removed", async (context) => {
  const { url, next } = await listen(context);
  const { client } = await foundAccount("managed");
  const made = await client.putWebhook(url, { namespaces: [" team "] });
  assert.deepEqual(
    [made.namespaces, made.events.toSorted()],
    [["team"], WEBHOOK_EVENTS.toSorted()],
  );
  const changed = await client.putWebhook(url, { id: made.id, active: false });
  assert.deepEqual([changed.active, changed.secret], [false, undefined]);
  const { secret } = await client.putWebhook(url, { id: made.id, new_secret: true });
  assert.notEqual(secret, made.secret);
  assert.deepEqual((await client.tryWebhook(made.id)).delivered, true);
  const told = await next();
  assert.equal(verifyWebhook(told.headers, told.body, secret!).type, "webhook.test");
  assert.deepEqual(
    (await client.webhooks()).map((one) => one.id),
    [made.id],
  );
  assert.equal((await client.removeWebhook(made.id)).removed, true);
  assert.equal((await client.removeWebhook(made.id)).removed, false);
  await assert.rejects(client.removeWebhook("../settings"), ConfigError);
});

/** Returns the address of a server that takes everything, and how to await what it is told. */
async function listen(context: TestContext): Promise<{ url: string; next: () => Promise<Told> }> {
  const waiting: Told[] = [];
  let wake = (): void => undefined;
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    waiting.push({ headers: request.headers, body: Buffer.concat(pieces) });
    response.writeHead(204).end();
    wake();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => (server.closeAllConnections(), server.close()));
  const next = async (): Promise<Told> => {
    while (waiting.length === 0) await new Promise<void>((told) => (wake = told));
    return waiting.shift()!;
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/in`, next };
}

function flat(told: Told): Record<string, string> {
  const pairs = Object.entries(told.headers).map(([name, value]) => [name, String(value)]);
  return Object.fromEntries(pairs) as Record<string, string>;
}

function refuses(code: string, check: () => unknown): void {
  assert.throws(check, (error: unknown) => error instanceof Invalid && error.code === code);
}
