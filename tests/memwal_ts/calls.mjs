// MemWal's published TypeScript SDK and the libraries its later releases stand on, against a relayer.
//
// `node calls.mjs URL PRIVATE_KEY ACCOUNT NAMESPACE` prints what came back as JSON. Those releases
// cannot be installed from a registry; their calls are made here as SPEC.md says (§5), with
// Mysten's own libraries where they use them: to sign, to look the package up, for the session.

import { createHash, randomUUID } from "node:crypto";

import { MemWal } from "@mysten-incubation/memwal";
import { SessionKey } from "@mysten/seal";
import { SuiGrpcClient } from "@mysten/sui/grpc";
import { SuiJsonRpcClient } from "@mysten/sui/jsonRpc";
import { Ed25519Keypair } from "@mysten/sui/keypairs/ed25519";

const [url, privateKey, account, namespace] = process.argv.slice(2);
const keypair = Ed25519Keypair.fromSecretKey(Buffer.from(privateKey, "hex"));
const publicKey = Buffer.from(keypair.getPublicKey().toRawBytes()).toString("hex");

/** What an attempt throws, or its result. */
async function attempt(call) {
  try {
    return await call();
  } catch (error) {
    return String(error);
  }
}

/** The content of `x-seal-session`, from one of Mysten's clients for a blockchain. */
async function sessionOf(suiClient, packageId) {
  const address = keypair.getPublicKey().toSuiAddress();
  const ttlMin = 5;
  const session = await SessionKey.create({ address, packageId, ttlMin, signer: keypair, suiClient });
  const { signature } = await keypair.signPersonalMessage(session.getPersonalMessage());
  await session.setPersonalMessageSignature(signature);
  const exported = { ...session.export() };
  delete exported.toJSON; // which throws, so that nobody prints a key by accident
  return Buffer.from(JSON.stringify(exported)).toString("base64");
}

/** The status and body of a signed call. */
async function signed(method, path, body, session) {
  const sent = method === "GET" ? "" : JSON.stringify(body);
  const [timestamp, nonce] = [String(Math.floor(Date.now() / 1000)), randomUUID()];
  const hash = createHash("sha256").update(sent).digest("hex");
  const text = [timestamp, method, path, hash, nonce, account].join(".");
  const signature = await keypair.sign(new TextEncoder().encode(text));
  const headers = {
    "Content-Type": "application/json",
    "x-public-key": publicKey,
    "x-signature": Buffer.from(signature).toString("hex"),
    "x-timestamp": timestamp,
    "x-nonce": nonce,
    "x-account-id": account,
    ...(session && { "x-seal-session": session }),
  };
  const answer = await fetch(url + path, { method, headers, body: sent || undefined });
  return { status: answer.status, ...(await answer.json()) };
}

/** Wait until a memory is stored. */
async function done(id, session) {
  for (;;) {
    const job = await signed("GET", `/api/remember/${id}`, {}, session);
    if (job.status === "done" || job.status === "failed") return job;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const old = MemWal.create({ key: privateKey, accountId: account, serverUrl: url, namespace });
const published = {
  health: (await old.health()).status,
  remember: await attempt(() => old.remember("Anna prefers green tea.")),
  recall: await attempt(() => old.recall("tea")),
};

const { packageId, network, suiRpcUrl } = await (await fetch(`${url}/config`)).json();
const clients = {
  jsonRpc: new SuiJsonRpcClient({ url: suiRpcUrl, network }),
  grpc: new SuiGrpcClient({ baseUrl: suiRpcUrl, network }),
};
const sessions = {};
for (const [name, client] of Object.entries(clients)) {
  const session = await sessionOf(client, packageId);
  const text = `${name}: Zoë's café is “Löwe” 🦁.`; // JSON.stringify leaves all of these as they are
  const { job_id } = await signed("POST", "/api/remember", { text, namespace }, session);
  const job = await done(job_id, session);
  const query = { query: `${name} café`, limit: 1, namespace, deadline_ms: 14_000 };
  const recalled = await signed("POST", "/api/recall", query, session);
  sessions[name] = { job: job.status, found: recalled.results[0].text === text };
}

const session = await sessionOf(clients.jsonRpc, packageId);
const items = ["The invoice is due on Friday.", "Bob lives in Oslo."];
const bulk = await signed(
  "POST", "/api/remember/bulk", { items: items.map((text) => ({ text, namespace })) }, session,
);
for (const id of bulk.job_ids) await done(id, session);
const { results } = await signed(
  "POST", "/api/remember/bulk/status", { job_ids: [...bulk.job_ids, randomUUID()] }, session,
);
const said = { text: "I decided to move to Lisbon next year.", namespace };
const analyzed = await signed("POST", "/api/analyze", said, session);
const asked = { query: "Where does Bob live?", limit: 2, namespace };
const recent = await signed("POST", "/api/recall", { ...asked, sort: "recent" }, session);
const { vector } = await signed("POST", "/api/embed", { text: "green tea" });
const data = Buffer.from("a client's own ciphertext").toString("base64");
const manual = await signed(
  "POST", "/api/remember/manual", { encrypted_data: data, vector, namespace },
);
const nearest = await signed("POST", "/api/recall/manual", { vector, limit: 1, namespace });
const restored = await signed("POST", "/api/restore", { namespace, limit: 10 }, session);
const { owner } = await signed("POST", "/api/stats", { namespace });
const listed = await signed("GET", `/v1/owners/${owner}/namespaces?limit=50`, {});
const forged = Buffer.from(session, "base64").toString().replace('"ttlMin":5', '"ttlMin":6');

console.log(
  JSON.stringify({
    published,
    sessions,
    forged: await signed("POST", "/api/recall", asked, Buffer.from(forged).toString("base64")),
    bulk: results.map((job) => job.status),
    analyzed: analyzed.facts.map((fact) => fact.text),
    recent: recent.results.map((memory) => memory.text),
    manual: manual.blob_id === nearest.results[0].blob_id,
    restored: [restored.restored, restored.skipped, restored.failed],
    namespaces: listed.namespaces.filter((one) => one.name === namespace),
  }),
);
