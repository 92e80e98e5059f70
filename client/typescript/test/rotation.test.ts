/** Rotation against a real relayer, whose address is in MEMRELAY_TEST_URL. */

import assert from "node:assert/strict";
import test from "node:test";

import {
  Client,
  ConfigError,
  finishJoining,
  readJoinRequests,
  requestToJoin,
  toHex,
  Identity,
  NotAuthenticated,
  NotGranted,
  readReceipt,
  fromBase64,
  accountBytes,
  type Profile,
} from "../src/index.ts";
import { foundAccount } from "./accounts.ts";

const KEYS = 66; // named ones take more than one grant

for (const custody of ["sealed", "managed"] as const) {
  test(`a ${custody} account goes on under new keys, and the revoked one does not`, async () => {
    const { client, profile } = await foundAccount(custody);
    await client.remember("The budget is 4,000.", { namespace: "team" });
    await client.remember("My diary.", { namespace: "private" });
    const [leaves, stays] = [await addAgent(client, profile), await addAgent(client, profile)];
    assert.equal((await leaves.client.recall("budget")).results[0]?.text, "The budget is 4,000.");
    const rotated = await client.rotate({ revoke: [leaves.client.publicKey] });
    assert.deepEqual([rotated.epoch, rotated.revoked], [2, [leaves.client.publicKey]]);
    const { relayer } = await client.statement();
    const receipts = rotated.receipts.map((text) =>
      readReceipt(fromBase64(text, "receipt"), relayer, accountBytes(client.accountId)),
    );
    assert.deepEqual([receipts[0]?.op, receipts.at(-1)?.serial], ["revoke", rotated.serial]);
    const done = await client.finishRotation();
    // What the revoked key could not read was not sealed anew: the first epoch is still needed.
    assert.deepEqual([done.remaining, done.older, done.retired], [0, 1, false]);
    await assert.rejects(new Client(leaves.profile).recall("budget"), NotAuthenticated);
    assert.equal((await stays.client.recall("budget")).results[0]?.text, "The budget is 4,000.");
    await stays.client.remember("The budget grows.");
    await client.reseal("all");
    const told: number[] = [];
    const all = await client.finishRotation({ onProgress: ({ done }) => told.push(done) });
    assert.deepEqual([all.older, all.retired], [0, true]);
    assert.equal(told.at(-1), all.total);
    assert.deepEqual(await client.liveEpochs(), [2]);
    const again = new Client(stays.profile);
    assert.equal((await again.recall("grows")).results[0]?.text, "The budget grows.");
    assert.equal((await client.recall("diary", { namespace: "private" })).total, 1);
    const ops = new Set((await client.receipts()).map((receipt) => receipt.op));
    assert.ok(ops.has("reseal") && ops.has("revoke"));
  });
}

test("a rotation leaves everybody what they had: roles, namespaces and ends", async () => {
  const { client } = await foundAccount("sealed");
  const namespaces = Array.from({ length: KEYS }, (_, at) => `room-${at}`);
  const reader = await client.addKey({ namespaces, role: "reader", expires: 3_600_000 });
  await client.addKey({ namespaces: null, role: "owner" });
  const before = describe(await client.grants());
  await client.rotate({ reseal: "none" });
  const after = describe(await client.grants());
  assert.deepEqual(after, before);
  const held = after.find((one) => one.publicKey === reader.publicKey);
  assert.deepEqual(held?.names, [...namespaces].sort());
});

test("a key takes the place of another one, and holds the same", async () => {
  const { client, profile } = await foundAccount("sealed");
  const old = await addAgent(client, profile);
  await old.client.remember("The budget is 4,000.");
  const joining = await requestToJoin(profile.url, { label: "agent" });
  const [request] = readJoinRequests(joining.request);
  const before = describe(await client.grants()).find(isOf(old.client.publicKey));
  const rotated = await client.replaceKey(old.client.publicKey, request!);
  assert.deepEqual(rotated.revoked, [old.client.publicKey]);
  assert.equal((await client.finishRotation()).remaining, 0);
  const { profile: own } = await finishJoining(joining);
  const recalled = await new Client({ ...own, namespace: "team" }).recall("budget");
  assert.equal(recalled.results[0]?.text, "The budget is 4,000.");
  await assert.rejects(new Client(old.profile).recall("budget"), NotAuthenticated);
  const after = describe(await client.grants());
  const publicKey = toHex(request!.recipient);
  assert.deepEqual(after.find(isOf(publicKey)), { ...before, publicKey });
  assert.equal(after.some(isOf(old.client.publicKey)), false);
  await assert.rejects(client.replaceKey(old.client.publicKey, request!), ConfigError);
  await assert.rejects(client.replaceKey(publicKey, request!), ConfigError);
});

const isOf =
  (publicKey: string) =>
  (held: Held): boolean =>
    held.publicKey === publicKey;

test("two owners rotate at once, and both are told the truth", async () => {
  const { client, profile } = await foundAccount("sealed");
  const { identity } = await client.addKey({ namespaces: null, role: "owner" });
  const other = new Client({ ...profile, private_key: identity!.seedHex() });
  await other.list();
  const [one, two] = await Promise.all([client.rotate(), other.rotate()]);
  assert.deepEqual([one.epoch, two.epoch].sort(), [2, 3]);
  await Promise.all([client.grants(), other.grants()]);
  assert.deepEqual(await client.liveEpochs(), await other.liveEpochs());
});

test("who may not rotate, and what is not revoked", async () => {
  const { client, profile } = await foundAccount("sealed");
  const agent = await addAgent(client, profile);
  await assert.rejects(agent.client.rotate(), NotGranted);
  const stranger = Identity.generate().publicKeyHex;
  await assert.rejects(client.rotate({ revoke: [stranger] }), ConfigError);
  for (let epoch = 2; epoch <= 8; epoch++) await client.rotate({ reseal: "none" });
  await assert.rejects(client.rotate(), ConfigError);
  assert.equal((await client.retireEpochs()).epoch, 8);
  assert.deepEqual(await client.liveEpochs(), [8]);
});

async function addAgent(
  client: Client,
  profile: Profile,
): Promise<{ client: Client; profile: Profile }> {
  const { identity } = await client.addKey({ namespaces: ["team"] });
  const own = { ...profile, private_key: identity!.seedHex(), namespace: "team" };
  return { client: new Client(own), profile: own };
}

type Held = { publicKey: string; role: string; expiresMs: number | null; names: string[] };

/** What each key may do, whatever grants say it. */
function describe(ledger: Awaited<ReturnType<Client["grants"]>>): Held[] {
  return ledger.holders(Date.now()).map(({ publicKey, grants }) => {
    const names = grants.flatMap((grant) => grant.scope.map((entry) => entry.namespace ?? "*"));
    const { role, expiresMs } = grants[0]!;
    return {
      publicKey: Buffer.from(publicKey).toString("hex"),
      role,
      expiresMs,
      names: [...new Set(names)].sort(),
    };
  });
}
