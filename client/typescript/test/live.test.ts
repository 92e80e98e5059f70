/** The client against a real relayer, whose address is in MEMRELAY_TEST_URL. */

import assert from "node:assert/strict";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { inspect } from "node:util";

import {
  accountBytes,
  Client,
  ConfigError,
  Conflict,
  finishJoining,
  Identity,
  Invalid,
  makeFingerprint,
  MemoryTrustStore,
  newProfile,
  NotAllowed,
  NotAuthenticated,
  NotFound,
  NotGranted,
  readJoinRequests,
  recoverIdentity,
  recoveryLines,
  requestToJoin,
  toHex,
  TransportError,
  UntrustedRelayer,
  writeJoinRequest,
} from "../src/index.ts";
import { FileTrustStore, loadProfile, saveProfile } from "../src/profile.ts";
import { foundAccount, url } from "./accounts.ts";

for (const custody of ["sealed", "managed"] as const) {
  test(`a ${custody} account remembers, recalls, lists and gets`, async () => {
    const { client } = await foundAccount(custody);
    const stored = await client.remember("Anna prefers tea.", { tags: ["drinks"] });
    assert.equal(stored.duplicate, false);
    const again = await client.remember("Anna prefers tea.");
    assert.deepEqual([again.id, again.duplicate], [stored.id, true]);
    const recalled = await client.recall("What does Anna drink?", { explain: true });
    assert.equal(recalled.results[0]?.text, "Anna prefers tea.");
    const { deep, results } = await client.recall("What does Anna drink?", { deep: true });
    assert.deepEqual(deep, { looks: 0, degraded: "no model" });
    assert.equal(results[0]?.text, "Anna prefers tea.");
    const page = await client.list({ tag: ["drinks"], after: new Date(Date.now() - 60_000) });
    assert.deepEqual(
      page.memories.map((one) => one.id),
      [stored.id],
    );
    assert.equal((await client.get(stored.id)).text, "Anna prefers tea.");
    await assert.rejects(client.get(crypto.randomUUID()), NotFound);
    await assert.rejects(client.get("../usage"), ConfigError);
  });
}

test("many memories are stored in one go, each with its receipt", async () => {
  const { client } = await foundAccount("sealed");
  const items = Array.from({ length: 45 }, (_, at) => `Room ${at} has ${at + 2} chairs.`);
  const told: number[] = [];
  const results = await client.rememberMany(items, { onProgress: (done) => told.push(done) });
  assert.equal(new Set(results.map((one) => one.id)).size, 45);
  assert.equal(told.at(-1), 45);
  const listed = [];
  for await (const memory of client.listAll({ limit: 20 })) listed.push(memory.text);
  assert.deepEqual(listed.sort(), [...items].sort());
  const receipts = await client.receipts();
  const named = new Set(receipts.flatMap((receipt) => receipt.items.map((item) => item.id)));
  assert.ok(results.every((one) => named.has(one.id!)));
});

test("a memory is corrected, pinned, superseded and forgotten", async () => {
  const { client } = await foundAccount("sealed");
  const { id } = await client.remember("The meeting is on Monday.", { source: "mail" });
  const edited = await client.edit(id, { text: "The meeting is on Tuesday.", source: null });
  assert.equal(edited.revision, 2);
  await assert.rejects(client.edit(id, { text: "On Friday.", revision: 1 }), Conflict);
  const history = await client.history(id);
  assert.deepEqual(
    history.revisions.map((one) => one.revision),
    [2, 1],
  );
  assert.equal(history.revisions[0]?.source, null);
  assert.equal((await client.pin(id)).pinned, true);
  const other = await client.remember("The meeting was called off.");
  assert.equal((await client.supersede(id, other.id)).state, "superseded");
  assert.equal((await client.reinstate(id)).state, "active");
  assert.equal((await client.forget(id)).erased, true);
  assert.equal((await client.forget(id)).already, true);
  const dry = await client.forgetMatching({ kind: "fact" }, { dryRun: true });
  assert.equal(dry.matched, 1);
  assert.equal((await client.forgetNamespace("default")).erased, 1);
});

test("memories are counted by time, writer and kind", async () => {
  const { client } = await foundAccount("sealed");
  const before = new Date();
  await client.rememberMany(["Tea at five.", { text: "Bert is in.", kind: "event" }]);
  const counts = await client.counts([new Date(Date.now() - 86_400_000), before]);
  assert.deepEqual([counts.memory_count, counts.periods], [2, [0, 2]]);
  assert.deepEqual(counts.kinds.map((one) => one.kind).sort(), ["event", "fact"]);
  assert.equal(counts.writers[0]?.writer, client.publicKey);
  assert.equal((await client.counts([before], { namespaces: ["other"] })).memory_count, 0);
});

test("a conversation gives facts", async () => {
  const { client } = await foundAccount("managed");
  const analysis = await client.analyze("user: I am allergic to peanuts.\nassistant: Noted.");
  assert.ok(analysis.facts.length >= 1);
  assert.match(analysis.facts[0]!.text, /peanut/i);
});

test("an agent's key reads its namespace and no other", async () => {
  const { client, profile } = await foundAccount("sealed");
  await client.remember("The budget is 4,000.", { namespace: "team" });
  await client.remember("My diary.", { namespace: "private" });
  const added = await client.addKey({ namespaces: ["team"], role: "reader", label: "agent" });
  const agentProfile = { ...profile, private_key: added.identity!.seedHex(), namespace: "team" };
  const agent = new Client(agentProfile);
  assert.equal((await agent.recall("budget")).results[0]?.text, "The budget is 4,000.");
  await assert.rejects(agent.recall("diary", { namespace: "private" }), NotGranted);
  await assert.rejects(agent.remember("More."), NotAllowed);
  assert.deepEqual(await agent.granted(), ["team"]);
  await client.revokeKey(agent.publicKey);
  await assert.rejects(new Client(agentProfile).recall("budget"), NotAuthenticated);
  const keys = await client.keys();
  assert.equal(keys.find((key) => key.public_key === agent.publicKey)?.revoked, true);
});

test("a key that was made elsewhere is admitted by its request", async () => {
  const { client, profile } = await foundAccount("sealed");
  const holder = Identity.generate();
  const { relayer } = await client.statement();
  const text = writeJoinRequest(holder, {
    relayer,
    account: null,
    createdMs: Date.now(),
    expiresMs: Date.now() + 600_000,
    label: "laptop",
  });
  const quoted = text.toUpperCase().replace(/.{40}/g, "$&\n> ");
  const [request] = readJoinRequests(quoted);
  await client.admit(request!, { namespaces: null, role: "owner" });
  const laptop = new Client({ ...profile, private_key: holder.seedHex() });
  await laptop.remember("From the laptop.");
  assert.equal((await client.recall("laptop")).results[0]?.writer, holder.publicKeyHex);
});

test("a recovery key is typed in again", async () => {
  const { client } = await foundAccount("sealed");
  const { identity } = await client.addKey({ namespaces: null, role: "owner" });
  const account = (await client.grants(), client.accountId);
  const bytes = Uint8Array.from(account.slice(2).match(/../g)!, (two) => parseInt(two, 16));
  const typed = recoveryLines(identity!, bytes).join("\n").toUpperCase();
  assert.equal(recoverIdentity(typed, bytes).publicKeyHex, identity!.publicKeyHex);
});

test("another relayer than the pinned one is refused", async () => {
  const { profile } = await foundAccount("sealed");
  const other = Identity.generate().publicKeyHex;
  const client = new Client({ ...profile, relayer_key: other });
  await assert.rejects(client.recall("tea"), (error: unknown) => {
    return error instanceof UntrustedRelayer && error.code === "pin";
  });
});

test("grants that were seen before may not be withheld", async () => {
  const { client, profile } = await foundAccount("sealed");
  await client.remember("Tea.");
  const trustStore = new MemoryTrustStore();
  await new Client(profile, { trustStore }).recall("tea");
  trustStore.write({ ...trustStore.read()!, grant_serial: 9 });
  const later = new Client(profile, { trustStore });
  await assert.rejects(later.recall("tea"), (error: unknown) => {
    return error instanceof UntrustedRelayer && error.code === "rollback";
  });
});

test("a signal ends a call with its own reason", async () => {
  const { client } = await foundAccount("sealed");
  const reason = new Error("enough");
  await assert.rejects(client.recall("tea", { signal: AbortSignal.abort(reason) }), reason);
});

test("nobody listens", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  const profile = newProfile(`http://127.0.0.1:${port}`);
  const client = new Client({ ...profile, custody: "sealed" }, { attemptsMax: 1 });
  await assert.rejects(client.recall("tea"), (error: unknown) => {
    return error instanceof TransportError && !error.sent;
  });
});

test("events are told as they happen, and from a place on", async () => {
  const { client } = await foundAccount("sealed");
  const first = await client.remember("One.");
  const second = await client.remember("Two.");
  const past = [];
  for await (const event of client.events({ after: 0, follow: false })) past.push(event);
  const written = past.filter((event) => event.type === "memory.written");
  assert.deepEqual(
    written.flatMap((event) => event.ids),
    [first.id, second.id],
  );
  const rest = [];
  const after = written[0]!.place!;
  for await (const event of client.events({ after, follow: false })) rest.push(event);
  assert.deepEqual(
    rest.filter((event) => event.receipt_seq !== null),
    [written[1]],
  );
  const ending = new AbortController();
  const live = client.events({ after: written[1]!.place!, signal: ending.signal });
  const next = live.next();
  const third = await client.remember("Three.");
  assert.deepEqual((await next).value?.ids, [third.id]);
  const reason = new Error("enough");
  const waiting = live.next();
  ending.abort(reason);
  await assert.rejects(waiting, reason);
});

test("a key asks to be let in, and finds the account that did", async () => {
  const { client } = await foundAccount("sealed");
  await client.remember("Hello.", { namespace: "team" });
  const joining = await requestToJoin(url, { label: "laptop", accountId: client.accountId });
  await assert.rejects(finishJoining(joining), NotAuthenticated);
  await client.admit(readJoinRequests(joining.request)[0]!, { namespaces: ["team"] });
  const joined = await finishJoining(joining);
  assert.deepEqual(joined.namespaces, ["team"]);
  assert.equal(joined.accountFingerprint, makeFingerprint(accountBytes(client.accountId)));
  const laptop = new Client(joined.profile);
  assert.equal((await laptop.list()).memories[0]?.text, "Hello.");
  const stranger = await foundAccount("sealed");
  const other = await requestToJoin(url, { accountId: client.accountId });
  const [request] = readJoinRequests(other.request);
  await assert.rejects(stranger.client.admit(request!, { namespaces: null }), (error: unknown) => {
    return error instanceof Invalid && error.code === "request.account";
  });
});

test("a profile is written, read again and private", async () => {
  const folder = await mkdtemp(join(tmpdir(), "memrelay-"));
  try {
    const { profile } = await foundAccount("sealed");
    const path = await saveProfile(profile, join(folder, "deep", "profile.json"));
    const read = await loadProfile(path, { MEMRELAY_NAMESPACE: "team" });
    assert.equal(read.private_key, profile.private_key);
    assert.equal(read.namespace, "team");
    const trustStore = new FileTrustStore(path, profile.account_id);
    await new Client(read, { trustStore }).remember("Kept.");
    assert.equal((await trustStore.read())?.sealed, true);
    await chmod(path, 0o644);
    await assert.rejects(loadProfile(path), ConfigError);
    await assert.rejects(loadProfile(join(folder, "none.json")), ConfigError);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("keys show themselves nowhere", () => {
  const identity = Identity.generate();
  const shown = inspect(identity, { depth: 9 }) + JSON.stringify({ identity });
  assert.ok(!shown.includes(identity.seedHex()));
  assert.ok(!shown.includes(toHex(identity.exchangeSecret)));
});
