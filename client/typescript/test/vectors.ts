/**
 * The project's test vectors, read by this client: the same in Node and in a browser.
 *
 * Not here: the vectors and what they must say (`tests/vectors/`, SPEC.md).
 *
 * - An operation or a member of `input` that nobody knows is a failure, not a case that is skipped.
 */

import { fromBase64, fromHex, sameBytes, toBase64, toHex, utf8 } from "../src/bytes.ts";
import { Invalid } from "../src/errors.ts";
import * as archive from "../src/sealed/archive.ts";
import * as envelope from "../src/sealed/envelope.ts";
import { type Grant, openGrant, readGrant } from "../src/sealed/grants.ts";
import { readJson } from "../src/sealed/json.ts";
import {
  accountBytes,
  accountIdOf,
  accountText,
  Identity,
  NamespaceKey,
  publicKeyBytes,
  Root,
} from "../src/sealed/keys.ts";
import { Ledger, oldestEpoch, readRevocation } from "../src/sealed/ledger.ts";
import { normaliseNamespace } from "../src/sealed/names.ts";
import { type Kind, readObject, signJoin, signObject } from "../src/sealed/objects.ts";
import { exchangePublic, mac } from "../src/sealed/primitives.ts";
import { followReceipts, readCheckpoint } from "../src/sealed/receipts.ts";
import { readStatement, readSuccession } from "../src/sealed/statement.ts";
import { buildUnlock } from "../src/sealed/unlock.ts";
import { makeSignedText } from "../src/signing.ts";
import * as relayer from "./relayersPart.ts";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Json = any;

/** A test vector, as its file has it. */
export interface Vector {
  readonly operation: string;
  readonly spec: string;
  readonly input: Json;
  readonly expect: string;
  readonly output?: Json;
  readonly made_with?: Json;
}

interface Operation {
  /** The members of `input`, `output` and `made_with`. */
  readonly shape: readonly [string, string, string];
  readonly read: (given: Json) => Json;
  /** Makes the input again from what was read of it and the maker's secrets. */
  readonly rebuild?: (given: Json, output: Json, madeWith: Json) => Json;
}

// This client's codes for each word of the vectors, where they are not the word itself.
const WORDS: Record<string, readonly string[]> = {
  box_closed: ["box"],
  box_form: ["box"],
  box_length: ["box"],
  custodian: ["role"],
  decryption: ["aead"],
  founder: ["issuer"],
  key: ["epoch", "key_id"],
  key_length: ["length"],
  length: ["length", "json"],
  owner_kept: ["role"],
  relayer: ["account"],
  role_scope: ["scope"],
  row: ["type", "account", "memory", "revision"],
  items: ["items", "list"],
  text: ["text", "uuid", "base64"],
};

const KEY = "namespace epoch namespace_key";
const LABELS = ["seal", "index", "vector", "fingerprint", "idempotency"] as const;
const TURN_ERROR_MAX = 2e-6; // float32 against double precision, entries of a unit vector

const hex = (text: string): Uint8Array => fromHex(text, text.length / 2, "value");
const bytes = (text: string): Uint8Array => fromBase64(text, "value");
const identity = (seed: string): Identity => new Identity(hex(seed));
const sign = (kind: Kind, output: Json, madeWith: Json): string =>
  toBase64(signObject(kind, output.members, identity(madeWith.seed)));
const keyOf = (given: Json): NamespaceKey =>
  new NamespaceKey(hex(given.namespace_key), given.epoch, normaliseNamespace(given.namespace));
const placeOf = (given: Json): envelope.Place => ({
  type: given.type,
  account: accountBytes(given.account),
  memory: given.memory,
  revision: given.revision,
});

const OPERATIONS: Record<string, Operation> = {
  mac: {
    shape: ["key size label parts", "mac", ""],
    read: (given) => ({
      mac: toHex(mac(given.size, hex(given.key), given.label, ...given.parts.map(hex))),
    }),
  },
  keys: {
    shape: [
      "seed root epoch namespace",
      "public_key exchange_public exchange_secret account root_id namespace_key key_id " +
        LABELS.join(" "),
      "",
    ],
    read: (given) => {
      const founder = identity(given.seed);
      const account = accountIdOf(founder.publicKey);
      const root = new Root(hex(given.root), given.epoch);
      const key = root.namespaceKey(account, given.namespace);
      return {
        public_key: founder.publicKeyHex,
        exchange_public: toHex(founder.exchangePublic),
        exchange_secret: toHex(founder.exchangeSecret),
        account: accountText(account),
        root_id: toHex(root.rootId),
        namespace_key: toHex(key.key),
        key_id: toHex(key.keyId),
        ...Object.fromEntries(LABELS.map((label) => [label, toHex(key.subkey(label))])),
      };
    },
  },
  "public-key": {
    shape: ["public_key", "exchange_public", ""],
    read: (given) => ({ exchange_public: toHex(exchangePublic(publicKeyBytes(given.public_key))) }),
  },
  namespace: {
    shape: ["name", "namespace", ""],
    read: (given) => ({ namespace: normaliseNamespace(given.name) }),
  },
  envelope: {
    shape: [
      `${KEY} type account memory revision envelope`,
      "record padded_bytes created blob_id",
      "nonce",
    ],
    read: (given) => {
      const stored = bytes(given.envelope);
      const record = envelope.openEnvelope(placeOf(given), keyOf(given), stored);
      return {
        record: toBase64(record),
        padded_bytes: envelope.pad(record).length,
        created: envelope.readEnvelopeHeader(stored).createdMs,
        blob_id: envelope.blobId(stored),
      };
    },
    rebuild: (given, output, madeWith) => {
      const [record, nonce] = [bytes(output.record), hex(madeWith.nonce)];
      const place = placeOf(given);
      const stored = envelope.sealEnvelope(place, keyOf(given), record, output.created, nonce);
      return { envelope: toBase64(stored) };
    },
  },
  token: {
    shape: [`${KEY} field term`, "token", ""],
    read: (given) => ({
      token: relayer.token(keyOf(given).subkey("index"), given.field, given.term),
    }),
  },
  fingerprint: {
    shape: [`${KEY} kind event_time text`, "fingerprint", ""],
    read: (given) => {
      const key = keyOf(given).subkey("fingerprint");
      const { kind, event_time, text } = given;
      return { fingerprint: toHex(relayer.fingerprint(key, kind, event_time, text)) };
    },
  },
  idempotency: {
    shape: [`${KEY} writer route item key text`, "mark text_mark", ""],
    read: (given) => {
      const writer = publicKeyBytes(given.writer);
      const marks = relayer.idempotencyMarks(keyOf(given), { ...given, writer });
      return { mark: toHex(marks.mark), text_mark: toHex(marks.textMark) };
    },
  },
  "index-record": {
    shape: [
      `${KEY} account memory revision record`,
      "length source postings vectors padded_bytes",
      "nonce",
    ],
    read: (given) => {
      const stored = bytes(given.record);
      const place = placeOf({ ...given, type: envelope.MEMORY });
      const found = relayer.openIndexRecord(place, keyOf(given), stored);
      return { ...found, padded_bytes: stored.length - 41 };
    },
  },
  lengths: {
    shape: ["words", "rounded", ""],
    read: (given) => ({ rounded: given.words.map(relayer.lengthBucket) }),
  },
  turn: {
    shape: [`${KEY} model vector`, "seed first every_64th weighted_sum", ""],
    read: (given) => {
      const rule = given.vector;
      const vector = Array.from({ length: rule.size }, (_, at) => rule.first + rule.step * at);
      if ("last" in rule) vector[vector.length - 1] = rule.last;
      const turned = relayer.turnVector(keyOf(given), given.model, vector);
      const sum = turned.reduce((total, value, at) => total + (at + 1) * value, 0);
      return {
        seed: toHex(relayer.turnSeed(keyOf(given), given.model, vector.length)),
        first: turned.slice(0, 8),
        every_64th: turned.filter((_, at) => at % 64 === 0),
        weighted_sum: sum / turned.length,
      };
    },
  },
  request: {
    shape: ["seed timestamp method target body nonce account_id", "text public_key signature", ""],
    read: (given) => {
      const signer = identity(given.seed);
      const { timestamp: timestampS, method, target, nonce, account_id: accountId } = given;
      const body = bytes(given.body);
      const text = makeSignedText({ timestampS, method, target, body, nonce, accountId });
      return {
        text: new TextDecoder().decode(text),
        public_key: signer.publicKeyHex,
        signature: toHex(signer.sign(text)),
      };
    },
  },
  json: {
    shape: ["head byte run tail members", "value", ""],
    read: (given) => {
      const payload = [bytes(given.head), utf8(given.byte.repeat(given.run)), bytes(given.tail)];
      const value = readJson(new Uint8Array(payload.flatMap((part) => [...part])), given.members);
      const shortened = Object.entries(value).map(([name, member]) =>
        typeof member === "string" && member.length > 999 ? [name, member.length] : [name, member],
      );
      return { value: Object.fromEntries(shortened) };
    },
  },
  object: {
    shape: ["kind signer object", "members", "seed"],
    read: (given) => ({
      members: readObject(given.kind, bytes(given.object), publicKeyBytes(given.signer)),
    }),
    rebuild: (given, output, madeWith) => ({ object: sign(given.kind, output, madeWith) }),
  },
  grant: {
    shape: ["grant recipient_seed", "members keys", "seed ephemeral boxed"],
    read: (given) => {
      const grant = readGrant(bytes(given.grant));
      accountBytes(grant.account); // the client compares the text, in its ledger only
      const opened = openGrant(grant, identity(given.recipient_seed));
      return { members: grantMembers(grant), keys: opened.map((key) => toHex(key.key)) };
    },
    rebuild: (_, output, madeWith) => ({ grant: sign("grant", output, madeWith) }),
  },
  revocation: {
    shape: ["object", "members", "seed"],
    read: (given) => {
      const read = readRevocation(bytes(given.object));
      accountBytes(read.account);
      return {
        members: {
          account: read.account,
          serial: read.serial,
          issuer: toHex(read.issuer),
          recipient: toHex(read.recipient),
          created: read.createdMs,
        },
      };
    },
    rebuild: (_, output, madeWith) => ({ object: sign("revoke", output, madeWith) }),
  },
  join: {
    shape: ["object account issuer recipient relayer", "members", "seed"],
    read: (given) => {
      const data = bytes(given.object);
      const account = accountBytes(given.account);
      const recipient = relayer.readJoin(data, { ...given, account });
      // The client returns who joins, where the relayer is told; comparing is the caller's part.
      if (recipient !== given.recipient) throw new Invalid("joiner", "Another key joins.");
      return { members: readObject("join", data, hex(recipient)) };
    },
    rebuild: (given, output, madeWith) => {
      const { account, issuer } = output.members;
      const signed = signJoin(identity(madeWith.seed), {
        account: account === null ? null : accountBytes(account),
        issuer: issuer === null ? null : hex(issuer),
        relayer: hex(given.relayer),
      });
      return { object: toBase64(signed) };
    },
  },
  statement: {
    shape: ["object pinned now", "members", "seed"],
    read: (given) => {
      const read = readStatement(bytes(given.object), hex(given.pinned), given.now);
      const unlockKeys = read.unlockKeys.map((key) => ({
        kid: toHex(key.kid),
        key: toHex(key.key),
        not_after: key.notAfterMs,
      }));
      const members = { relayer: toHex(read.relayer), issued: read.issuedMs };
      return { members: { ...members, unlock_keys: unlockKeys } };
    },
    rebuild: (_, output, madeWith) => ({ object: sign("relayer", output, madeWith) }),
  },
  receipts: {
    shape: ["relayers account seq head receipts", "seq head members", "seeds"],
    read: (given) => {
      const from = { seq: given.seq, head: hex(given.head) };
      const account = accountBytes(given.account);
      const relayers = given.relayers.map(hex);
      const followed = followReceipts(given.receipts.map(bytes), relayers, account, from);
      const last = followed.at(-1);
      return {
        seq: last?.seq ?? given.seq,
        head: last ? toHex(last.digest) : given.head,
        members: followed.map((receipt) => ({
          relayer: toHex(receipt.relayer),
          account: accountText(receipt.account),
          seq: receipt.seq,
          prev: toHex(receipt.prev),
          time: receipt.timeMs,
          op: receipt.op,
          actor: toHex(receipt.actor),
          namespace: receipt.namespace,
          epoch: receipt.epoch,
          items: receipt.items.map((item) => [item.id, item.revision, item.blobId]),
          serial: receipt.serial,
        })),
      };
    },
    rebuild: (given, output, madeWith) => {
      const seeds = new Map(
        given.relayers.map((key: string, at: number) => [key, madeWith.seeds[at]]),
      );
      const made = output.members.map((members: Json) =>
        sign("receipt", { members }, { seed: seeds.get(members.relayer) }),
      );
      return { receipts: made };
    },
  },
  checkpoint: {
    shape: ["object account relayers", "members", "seed"],
    read: (given) => {
      const account = accountBytes(given.account);
      const read = readCheckpoint(bytes(given.object), given.relayers.map(hex), account);
      return {
        members: {
          relayer: toHex(read.relayer),
          account: accountText(read.account),
          seq: read.seq,
          head: toHex(read.head),
          grant_serial: read.grantSerial,
          time: read.timeMs,
        },
      };
    },
    rebuild: (_, output, madeWith) => ({ object: sign("checkpoint", output, madeWith) }),
  },
  succession: {
    shape: ["objects last", "keys", ""],
    read: (given) => ({
      keys: readSuccession(given.objects.map(bytes), hex(given.last)).map(toHex),
    }),
  },
  chain: {
    shape: ["account now objects succession about", "serial live", ""],
    read: (given) => {
      const history = new Ledger(accountBytes(given.account));
      for (const signed of given.succession) history.learn(bytes(signed));
      for (const signed of given.objects) {
        const data = bytes(signed);
        const isGrant = new TextDecoder().decode(data).includes('"grant":');
        history.add(isGrant ? readGrant(data) : readRevocation(data));
      }
      const serials = (key: string): number[] =>
        history.listGrantsTo(hex(key), given.now).map((grant) => grant.serial);
      const live = Object.fromEntries(given.about.map((key: string) => [key, serials(key)]));
      return { serial: history.serial, live };
    },
  },
  epochs: {
    shape: ["account now objects about", "oldest", ""],
    read: (given) => {
      const objects = given.objects.map((one: string) => ({ kind: "grant", object: bytes(one) }));
      const history = Ledger.of(accountBytes(given.account), objects);
      return { oldest: oldestEpoch(history.listGrantsTo(hex(given.about), given.now)) };
    },
  },
  unlock: {
    shape: [
      "header unlock_secrets relayer account sender now",
      "iat hold keys",
      "seed unlock_keys content_key box_nonces nonce payload",
    ],
    read: (given) => {
      const opened = relayer.openUnlock(given.header, {
        secrets: given.unlock_secrets.map(hex),
        relayer: given.relayer,
        account: given.account,
        sender: hex(given.sender),
        nowMs: given.now,
      });
      const keys = opened.keys.map((key) => ({
        ns: key.name,
        epoch: key.epoch,
        key: toBase64(key.key),
      }));
      return { iat: opened.issuedMs, hold: opened.holdS, keys };
    },
    rebuild: (given, output, madeWith) => {
      const unlock = {
        relayer: hex(given.relayer),
        account: accountBytes(given.account),
        issuedMs: output.iat,
        holdS: output.hold,
        keys: output.keys.map((key: Json) => new NamespaceKey(bytes(key.key), key.epoch, key.ns)),
      };
      const random = {
        contentKey: hex(madeWith.content_key),
        boxNonces: madeWith.box_nonces.map(hex),
        nonce: hex(madeWith.nonce),
      };
      const unlockKeys = madeWith.unlock_keys.map(hex);
      return { header: buildUnlock(identity(madeWith.seed), unlock, unlockKeys, random) };
    },
  },
  archive: {
    shape: [
      "archive account recipient_seed",
      "archive_id created signer relayer records chunk_sizes",
      "key nonces",
    ],
    read: async (given) => {
      const reader = new archive.ArchiveReader(inPieces(bytes(given.archive), 700));
      const header = await reader.readHeader();
      if (!sameBytes(header.account, accountBytes(given.account))) {
        throw new Invalid("account", "another account's archive");
      }
      const opened = archive.openArchiveBox(header, identity(given.recipient_seed));
      const key = new archive.ChunkKey(header.archive, opened);
      const chunks = await listOf(reader.openChunks(key));
      return {
        archive_id: header.archive,
        created: header.createdMs,
        signer: toHex(header.signer),
        relayer: toHex(header.relayer),
        records: await listOf(archive.readRecords(chunks)),
        chunk_sizes: chunks.map((chunk) => chunk.length),
      };
    },
    rebuild: (given, output, madeWith) => {
      const data = bytes(given.archive);
      const key = new archive.ChunkKey(output.archive_id, hex(madeWith.key));
      const stream = output.records.flatMap((record: Json) => [...archive.writeRecord(record)]);
      const magic = 17;
      const headEnd = magic + 4 + new DataView(data.buffer).getUint32(magic);
      const rebuilt = [...data.subarray(0, headEnd)];
      let at = 0;
      output.chunk_sizes.forEach((size: number, index: number) => {
        const plaintext = Uint8Array.from(stream.slice(at, at + size));
        const isLast = index === output.chunk_sizes.length - 1;
        for (const byte of key.seal(index, plaintext, isLast, hex(madeWith.nonces[index]))) {
          rebuilt.push(byte);
        }
        at += size;
      });
      return { archive: toBase64(Uint8Array.from(rebuilt)) };
    },
  },
};

/** The operations that there are vectors for. */
export const operations: readonly string[] = Object.keys(OPERATIONS);

function grantMembers(grant: Grant): Json {
  return {
    account: grant.account,
    grant: grant.grant,
    serial: grant.serial,
    issuer: toHex(grant.issuer),
    recipient: toHex(grant.recipient),
    role: grant.role,
    scope: grant.scope.map((entry) =>
      entry.namespace === null
        ? { epoch: entry.epoch, root_id: toHex(entry.rootId) }
        : { ns: entry.namespace, epoch: entry.epoch, key_id: toHex(entry.keyId) },
    ),
    created: grant.createdMs,
    expires: grant.expiresMs,
    box: toBase64(grant.box),
  };
}

function* inPieces(data: Uint8Array, size: number): Generator<Uint8Array> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

async function listOf<T>(source: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of source) found.push(one);
  return found;
}

/**
 * Reads one vector; returns what is wrong, or null.
 *
 * `text` is the file: whole numbers beyond 2⁵³, such as tokens, are compared by their digits.
 */
export async function checkVector(text: string): Promise<string | null> {
  const vector = JSON.parse(text) as Vector;
  const operation = OPERATIONS[vector.operation];
  if (operation === undefined) return `unknown operation ${vector.operation}`;
  const [given, output, madeWith] = operation.shape;
  const isOk = vector.expect === "ok";
  const top = "operation spec input expect" + (isOk ? " output made_with" : "");
  const misfit =
    differing(vector, top) ??
    differing(vector.input, given) ??
    (isOk ? (differing(vector.output, output) ?? differing(vector.made_with, madeWith)) : null);
  if (misfit !== null) return misfit;
  let found: Json;
  try {
    found = await operation.read(vector.input);
  } catch (error) {
    if (!(error instanceof Invalid)) return `it threw ${String(error)}`;
    const words = WORDS[vector.expect] ?? [vector.expect];
    return words.includes(error.code) ? null : `${error.code} in place of ${vector.expect}`;
  }
  if (!isOk) return `read, in place of ${vector.expect}`;
  if (vector.operation === "token") {
    return text.includes(`"token": ${found.token}\n`) ? null : `another token: ${found.token}`;
  }
  if (vector.operation === "turn") {
    // A sum of so many entries, each times its place, may be so much farther off.
    const sizes = [found.weighted_sum, vector.output.weighted_sum];
    if (!isSame(sizes[0], sizes[1], TURN_ERROR_MAX * vector.input.vector.size))
      return "another sum";
    found.weighted_sum = sizes[1];
  }
  const tolerance = vector.operation === "turn" ? TURN_ERROR_MAX : 0;
  if (!isSame(found, vector.output, tolerance)) return `read another value: ${show(found)}`;
  const rebuilt = operation.rebuild?.(vector.input, vector.output, vector.made_with) ?? {};
  for (const [name, value] of Object.entries(rebuilt)) {
    if (!isSame(value, vector.input[name], 0)) return `made another ${name}`;
  }
  return null;
}

function show(value: Json): string {
  return JSON.stringify(value).slice(0, 300);
}

function differing(value: Json, members: string): string | null {
  const [found, wanted] = [Object.keys(value).sort(), members.split(" ").filter(Boolean).sort()];
  return found.join() === wanted.join() ? null : `members ${found.join()}, not ${wanted.join()}`;
}

function isSame(left: Json, right: Json, tolerance: number): boolean {
  if (typeof left === "number" && typeof right === "number") {
    return Math.abs(left - right) <= tolerance;
  }
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) {
    return left === right;
  }
  const names = Object.keys(left);
  return (
    Array.isArray(left) === Array.isArray(right) &&
    names.length === Object.keys(right).length &&
    names.every((name) => Object.hasOwn(right, name) && isSame(left[name], right[name], tolerance))
  );
}
