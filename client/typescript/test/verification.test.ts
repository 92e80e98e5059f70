/** What a relayer stores and shows, checked from outside; a meddler in between is named. */

import assert from "node:assert/strict";
import test from "node:test";

import {
  blobId,
  Client,
  type ClientOptions,
  fromBase64,
  MemoryTrustStore,
  type Profile,
  toBase64,
  UntrustedRelayer,
} from "../src/index.ts";
import { verifyAccount, type VerifyOptions } from "../src/verification/verifying.ts";
import { foundAccount } from "./accounts.ts";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Answer = any;

/** Changes what a route answers; `path` begins with it. */
interface Meddling {
  readonly path: string;
  readonly change: (answer: Answer) => void;
  readonly finds: readonly string[];
  readonly options?: VerifyOptions;
}

/** Returns an account with something of everything, and its owner's profile. */
async function fill(): Promise<{ client: Client; profile: Profile; ids: string[] }> {
  const { client, profile } = await foundAccount("sealed");
  const first = await client.remember("Anna prefers tea.", { tags: ["drinks"] });
  const second = await client.remember("Ben sells cups.", { namespace: "shop" });
  await client.edit(first.id, { text: "Anna prefers coffee." });
  await client.pin(second.id);
  await client.forget((await client.remember("Nobody needs this.")).id);
  await client.addKey({ namespaces: ["shop"], label: "agent" });
  return { client, profile, ids: [first.id, second.id] };
}

test("an honest relayer is found to be one, before and after a rotation", async () => {
  const { client } = await fill();
  const { signed } = await client.checkpoint();
  const told: string[] = [];
  const onProgress = (what: string): void => void told.push(what);
  const found = await verifyAccount(client, { openAll: true, onProgress });
  assert.deepEqual([found.ok, found.findings], [true, []]);
  assert.deepEqual([found.blobs, found.opened, found.grants, found.unproven], [3, 3, 2, 0]);
  assert.equal(found.receipts, found.seq);
  assert.deepEqual([...new Set(told)], ["receipts", "blobs"]);
  await client.rotate();
  await client.reseal("all");
  assert.equal((await client.finishRotation()).retired, true);
  const after = await verifyAccount(client, { openAll: true, checkpoints: [signed] });
  assert.deepEqual([after.ok, after.findings, after.opened], [true, [], 3]);
  const later = await verifyAccount(client, { since: signed, namespaces: ["shop"] });
  assert.deepEqual([later.ok, later.findings, later.blobs], [true, [], 1]);
  assert.equal(later.receipts, after.seq - found.seq);
});

test("a key of some namespaces checks the bytes of these, and says what it cannot", async () => {
  const { client, profile } = await fill();
  const { identity } = await client.addKey({ namespaces: ["shop"] });
  const agent = new Client({ ...profile, private_key: identity!.seedHex(), namespace: "shop" });
  const found = await verifyAccount(agent, { openAll: true });
  assert.deepEqual([found.ok, found.blobs, found.opened], [true, 1, 1]);
  assert.deepEqual(found.unchecked, ["receipts", "grants"]);
  const reader = await client.addKey({ namespaces: null, role: "reader" });
  const whole = new Client({ ...profile, private_key: reader.identity!.seedHex() });
  const all = await verifyAccount(whole);
  assert.deepEqual([all.ok, all.findings, all.unchecked], [true, [], ["grants"]]);
});

const flip = (text: string): string => {
  const data = fromBase64(text, "blob");
  data[data.length - 1]! ^= 1;
  return toBase64(data);
};
const INVENTORY = "/v1/inventory";
const SEQ_LEFT = 3;
let headLeft = "";

/** Leaves an account's first receipts alone, as if no more were there. */
function rollBack(answer: Answer): void {
  answer.receipts = answer.receipts.filter((text: string) => {
    const data = fromBase64(text, "receipt");
    const { seq } = JSON.parse(new TextDecoder().decode(data.subarray(0, -64)));
    if (seq === SEQ_LEFT) headLeft = Buffer.from(blobId(data), "base64url").toString("hex");
    return seq <= SEQ_LEFT;
  });
  Object.assign(answer, { seq: SEQ_LEFT, head: headLeft });
}

const MEDDLINGS: Readonly<Record<string, Meddling>> = {
  "a memory is withheld": {
    path: INVENTORY,
    change: (answer) => answer.items.splice(-1),
    finds: ["missing"],
  },
  "an earlier revision stands for the newest": {
    path: INVENTORY,
    change: (answer) => {
      answer.items = answer.items.filter((item: Answer) => item.revision !== 2);
    },
    finds: ["missing", "state"],
  },
  "a memory is shown in another namespace": {
    path: INVENTORY,
    change: (answer) => void (answer.items.at(-1).namespace = "shop"),
    finds: ["receipt"],
  },
  "a memory is made of nothing": {
    path: INVENTORY,
    change: (answer) => {
      answer.items.push({ ...answer.items[0], id: "01a226ec-853a-73fa-aff5-9d0a64d99390" });
    },
    finds: ["header", "unnamed"],
  },
  "a memory's pin is taken away": {
    path: INVENTORY,
    change: (answer) => {
      for (const item of answer.items) item.pinned = false;
    },
    finds: ["state"],
  },
  "a memory is said to be superseded": {
    path: INVENTORY,
    change: (answer) => {
      const [one, other] = answer.items;
      Object.assign(one, { superseded_by: other.id, superseded_at: "2026-01-01T00:00:00.000Z" });
    },
    finds: ["state"],
  },
  "one of the account's own is called foreign": {
    path: INVENTORY,
    change: (answer) => void (answer.items[0].format = "opaque"),
    finds: ["header"],
  },
  "a blob is altered": {
    path: "/v1/blobs",
    change: (answer) => void (answer.blobs[0].data = flip(answer.blobs[0].data)),
    finds: ["blob"],
  },
  "a blob is withheld": {
    path: "/v1/blobs",
    change: (answer) => void answer.blobs.splice(0, 1),
    finds: ["blob"],
  },
  "a blob is replaced, and named anew": {
    path: "/v1/blobs",
    change: (answer) => {
      const data = new Uint8Array(500).fill(7);
      answer.blobs[0] = { blob_id: blobId(data), data: toBase64(data), problem: null };
    },
    finds: ["blob"],
  },
  "a receipt is left out": {
    path: "/v1/receipts",
    change: (answer) => void answer.receipts.splice(2, 1),
    finds: ["chain"],
  },
  "a receipt is altered": {
    path: "/v1/receipts",
    change: (answer) => {
      if (answer.receipts.length > 0) answer.receipts[1] = flip(answer.receipts[1]);
    },
    finds: ["chain"],
  },
  "the last receipts are withheld": {
    path: "/v1/receipts",
    change: rollBack,
    finds: ["grants", "state", "unnamed"],
  },
  "the chain is said to go on": {
    path: "/v1/receipts",
    change: (answer) => void answer.seq++,
    finds: ["head"],
  },
  "the newest grant is withheld": {
    path: "/v1/grants",
    change: (answer) => void answer.grants.pop(),
    finds: ["grants"],
  },
};

for (const [what, meddling] of Object.entries(MEDDLINGS)) {
  test(`${what}: it is found`, async () => {
    const { profile } = await fill();
    const client = new Client(profile, { fetch: meddle(meddling) });
    const found = await verifyAccount(client, meddling.options);
    const words = [...new Set(found.findings.map((finding) => finding.what))].sort();
    assert.deepEqual(words, meddling.finds, JSON.stringify(found.findings));
    assert.equal(found.ok, false);
  });
}

test("a history that lacks what was seen before is another one", async () => {
  const { client, profile } = await fill();
  const trustStore = new MemoryTrustStore();
  const seen = new Client(profile, { trustStore });
  await seen.receipts();
  const kept = trustStore.read()!;
  trustStore.write({ ...kept, checked_head: "ab".repeat(32), receipt_seq: kept.checked_seq + 9 });
  const found = await verifyAccount(new Client(profile, { trustStore } as ClientOptions));
  const words = found.findings.map((finding) => [finding.what, finding.seq]);
  assert.deepEqual(words, [
    ["fork", kept.checked_seq],
    ["rollback", kept.checked_seq + 9],
  ]);
  const other = await foundAccount("sealed");
  const { signed } = await other.client.checkpoint();
  const strange = await verifyAccount(client, { checkpoints: [signed] });
  assert.deepEqual(
    strange.findings.map((finding) => finding.what),
    ["checkpoint"],
  );
  await assert.rejects(verifyAccount(client, { since: signed }), UntrustedRelayer);
});

/** Returns a `fetch` whose answers of a route are changed. */
function meddle(meddling: Meddling): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (!new URL(String(input)).pathname.startsWith(meddling.path)) return response;
    const answer = await response.json();
    const isLast = Array.isArray(answer.items) && answer.items.length === 0;
    if (!isLast) meddling.change(answer);
    const { status, headers } = response;
    const kept = { "content-type": headers.get("content-type")! };
    return new Response(JSON.stringify(answer), { status, headers: kept });
  };
}
