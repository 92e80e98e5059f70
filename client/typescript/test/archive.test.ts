/** An account that moves in an archive from one real relayer to another. */

import assert from "node:assert/strict";
import test from "node:test";

import {
  Client,
  exportArchive,
  type ExportResult,
  Identity,
  importArchive,
  Invalid,
  newProfile,
  NotGranted,
  openArchive,
  type Profile,
} from "../src/index.ts";

const from = process.env["MEMRELAY_TEST_URL"];
const to = process.env["MEMRELAY_TEST_OTHER_URL"];
if (from === undefined || to === undefined) throw new Error("The addresses name no two relayers.");

async function written(client: Client): Promise<{ file: Blob; result: ExportResult }> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const bytes = exportArchive(client);
  for (;;) {
    const { done, value } = await bytes.next();
    if (done) return { file: new Blob(parts), result: value };
    parts.push(value);
  }
}

async function inhabited(): Promise<{ client: Client; profile: Profile; identity: Identity }> {
  const identity = Identity.generate();
  const profile = newProfile(from!, identity);
  const client = new Client(profile);
  await client.createAccount({ label: "mover" });
  const { id } = await client.remember("The meeting is on Monday.");
  await client.edit(id, { text: "The meeting is on Tuesday." });
  await client.rememberMany(Array.from({ length: 30 }, (_, at) => `Room ${at} has ${at} chairs.`));
  const gone = await client.remember("My diary.", { namespace: "private" });
  await client.forget(gone.id);
  await client.addKey({ namespaces: ["default"], label: "agent" });
  return { client, profile, identity };
}

const accountOf = (client: Client): Uint8Array =>
  Uint8Array.from(client.accountId.slice(2).match(/../g)!, (two) => parseInt(two, 16));

test("an account moves with its history, and a second time changes nothing", async () => {
  const { client, profile, identity } = await inhabited();
  const { file, result } = await written(client);
  assert.deepEqual([result.lost, result.missing], [0, []]);
  assert.deepEqual([result.counts["memory"], result.counts["tombstone"]], [32, 1]);
  const archive = await openArchive(file, identity, accountOf(client));
  assert.deepEqual(archive.counts, result.counts);
  const moved = new Client({ ...profile, url: to!, relayer_key: null });
  const told: number[] = [];
  const tally = await importArchive(moved, archive, { onProgress: (rows) => told.push(rows) });
  assert.deepEqual(tally, { imported: 32 });
  assert.equal(told.at(-1), 32);
  const { results } = await moved.recall("When is the meeting?");
  assert.equal(results[0]?.text, "The meeting is on Tuesday.");
  const history = await moved.history(results[0]!.id);
  assert.deepEqual(
    history.revisions.map((one) => one.text),
    ["The meeting is on Tuesday.", "The meeting is on Monday."],
  );
  assert.equal((await moved.keys()).length, 2);
  assert.deepEqual(await importArchive(moved, archive), { unchanged: 32 });
  await client.edit(results[0]!.id, { text: "The meeting is on Friday." });
  const later = await openArchive((await written(client)).file, identity, accountOf(client));
  assert.deepEqual(await importArchive(moved, later), { imported: 1, unchanged: 32 });
  assert.equal((await moved.get(results[0]!.id)).text, "The meeting is on Friday.");
});

test("an archive that was altered or cut is none, and only owners make one", async () => {
  const { client, profile, identity } = await inhabited();
  const { file } = await written(client);
  const account = accountOf(client);
  const whole = new Uint8Array(await file.arrayBuffer());
  const altered = whole.slice();
  altered[whole.length - 5]! ^= 1;
  for (const bad of [altered, whole.slice(0, -9), whole.slice(0, 40), new Uint8Array(9)]) {
    await assert.rejects(openArchive(new Blob([bad]), identity, account), Invalid);
  }
  await assert.rejects(openArchive(file, Identity.generate(), account), Invalid);
  await assert.rejects(openArchive(file, identity, new Uint8Array(32)), Invalid);
  const added = await client.addKey({ namespaces: null, role: "writer" });
  const writer = new Client({ ...profile, private_key: added.identity!.seedHex() });
  await assert.rejects(written(writer), NotGranted);
});
