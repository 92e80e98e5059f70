/**
 * What SPEC.md says for whoever writes a relayer, done with the client's own parts.
 *
 * The client has no use for it. Here it shows that the client's formats and the relayer's are the
 * same (`vectors.ts`).
 *
 * Source: SPEC.md §4.2, §5-9.
 */

import { chacha20 } from "@noble/ciphers/chacha.js";

import {
  type Bytes,
  concat,
  fromBase64,
  fromHex,
  sameBytes,
  toHex,
  u32,
  utf8,
  viewOf,
} from "../src/bytes.ts";
import { Invalid } from "../src/errors.ts";
import { type JsonValue, hasMembers, readJson } from "../src/sealed/json.ts";
import {
  accountBytes,
  accountText,
  checkEpoch,
  NamespaceKey,
  publicKeyBytes,
} from "../src/sealed/keys.ts";
import { settleNamespace } from "../src/sealed/names.ts";
import { integer, readObject, textOf } from "../src/sealed/objects.ts";
import {
  aeadOpen,
  boxKey,
  boxOpen,
  exact,
  exchangePublic,
  exchangePublicOf,
  hash256,
  kdf,
  mac,
} from "../src/sealed/primitives.ts";

const ROUNDS = 4;
const DIMENSION_MAX = 4_000;
const ENTRY_BYTES = 8 + 24 + 48;
const PYTHON_BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;

/** Returns the signed 64-bit posting token of a term; `field` is w, t, s or m. */
export function token(index: Uint8Array, field: string, term: string): bigint {
  if (!/^[wtsm]$/.test(field)) throw new Invalid("field", "A token's field is w, t, s or m.");
  return viewOf(mac(8, index, "token", utf8(field), utf8(term))).getBigInt64(0);
}

/** Returns the 16 bytes by which the same fact is recognised. */
export function fingerprint(
  key: Uint8Array,
  kind: string,
  eventTimeMs: number | null,
  text: string,
): Bytes {
  const folded = text.normalize("NFC").replace(PYTHON_BLANKS, " ").replace(/^ | $/g, "");
  const when = eventTimeMs === null ? "" : String(eventTimeMs);
  return mac(16, key, "fact", utf8(kind), utf8(when), utf8(folded));
}

/** Returns a memory's length in words, rounded up to 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 …. */
export function lengthBucket(words: number): number {
  let [bucket, step] = [1, 1];
  while (bucket < words) {
    bucket += step;
    step = Math.max(1, 2 ** (30 - Math.clz32(bucket)));
  }
  return bucket;
}

/** Returns what a sealed index record holds (SPEC §8.1), its 64-bit numbers as text. */
export function openIndexRecord(
  place: { account: Uint8Array; memory: string; revision: number },
  key: NamespaceKey,
  stored: Uint8Array,
): Record<string, JsonValue> {
  if (stored[0] !== 1) throw new Invalid("version", "The index record is of another version.");
  const memory = fromHex(place.memory.replaceAll("-", ""), 16, "memory");
  const associated = concat(stored.subarray(0, 1), place.account, memory, u32(place.revision));
  const [nonce, sealed] = [stored.subarray(1, 25), stored.subarray(25)];
  const plain = aeadOpen(kdf(key.key, "index-record"), nonce, sealed, associated);
  const record = unpadBy(plain, 128);
  const view = viewOf(record);
  const none = new Invalid("no_record", "This is no index record.");
  if (record.length < 15) throw none;
  const count = view.getUint32(11);
  const end = 15 + 9 * count;
  if (record.length < end + 6) throw none;
  const [vectors, size] = [view.getUint32(end), view.getUint16(end + 4)];
  if (record.length !== end + 6 + vectors * size) throw none;
  return {
    length: view.getUint16(0),
    source: record[2] === 1 ? String(view.getBigInt64(3)) : null,
    postings: Array.from({ length: count }, (_, n) => [
      String(view.getBigInt64(15 + 8 * n)),
      view.getUint8(15 + 8 * count + n),
    ]),
    vectors: Array.from({ length: vectors }, (_, n) =>
      Array.from({ length: size }, (_, at) => view.getInt8(end + 6 + n * size + at)),
    ),
  };
}

/** Returns what was padded to steps of at least so many bytes. */
function unpadBy(padded: Bytes, leastStep: number): Bytes {
  const length = 4 + viewOf(padded).getUint32(0);
  const power = 31 - Math.clz32(length);
  const step = Math.max(leastStep, 2 ** (power - (32 - Math.clz32(power))));
  const isWhole = padded.length === Math.ceil(length / step) * step;
  if (!isWhole || padded.subarray(length).some((byte) => byte !== 0)) {
    throw new Invalid("padding", "An index record's padding is damaged.");
  }
  return padded.subarray(4, length);
}

/** Returns the seed of a rotation of vectors. */
export function turnSeed(key: NamespaceKey, model: string, size: number): Bytes {
  return kdf(key.subkey("vector"), "turn", utf8(model), u32(size));
}

/** Returns a vector scaled to unit length and turned by the namespace's secret rotation. */
export function turnVector(key: NamespaceKey, model: string, vector: readonly number[]): number[] {
  const size = vector.length;
  const norm = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  if (size < 1 || size > DIMENSION_MAX || !(norm > 0) || !Number.isFinite(norm)) {
    throw new Invalid("vector", "A vector has 1 to 4,000 finite numbers and is not zero.");
  }
  const words = viewOf(deterministic(8 * ROUNDS * size, turnSeed(key, model, size)));
  let turned = vector.map((value) => value / norm);
  for (let round = 0; round < ROUNDS; round++) {
    const drawn = turned.map((_, at) => words.getBigUint64(8 * (round * size + at)));
    turned = turnOnce(turned, drawn);
  }
  return turned;
}

/** Returns libsodium's `randombytes_buf_deterministic`. */
function deterministic(size: number, seed: Uint8Array): Bytes {
  return chacha20(seed, utf8("LibsodiumDRG"), new Uint8Array(size)) as Bytes;
}

function turnOnce(vector: readonly number[], words: readonly bigint[]): number[] {
  const size = vector.length;
  const block = 2 ** (31 - Math.clz32(size));
  const order = words.map((_, at) => at);
  order.sort((left, right) => {
    const [one, other] = [words[left]! >> 1n, words[right]! >> 1n];
    return one < other ? -1 : one > other ? 1 : 0;
  });
  const mixed = order.map((from, at) => (words[at]! & 1n ? -vector[from]! : vector[from]!));
  for (const at of new Set([0, size - block])) walshHadamard(mixed, at, block);
  return mixed;
}

function walshHadamard(values: number[], at: number, size: number): void {
  for (let half = 1; half < size; half *= 2) {
    for (let start = at; start < at + size; start += 2 * half) {
      for (let low = start; low < start + half; low++) {
        const [left, right] = [values[low]!, values[low + half]!];
        values[low] = left + right;
        values[low + half] = left - right;
      }
    }
  }
  for (let index = at; index < at + size; index++) values[index]! /= Math.sqrt(size);
}

/** Returns the public key that joins. */
export function readJoin(
  data: Uint8Array,
  wanted: { account: Uint8Array; issuer: string; relayer: string },
): string {
  const value = readObject("join", data, "recipient");
  const isWanted =
    [accountText(wanted.account), null].includes(value["account"] as string) &&
    [wanted.issuer, null].includes(value["issuer"] as string) &&
    value["relayer"] === wanted.relayer;
  if (!isWanted) throw new Invalid("join", "The join names another account, issuer or relayer.");
  return toHex(publicKeyBytes(value["recipient"]));
}

/** The content of an unlock header, as a relayer reads it. */
export interface OpenedUnlock {
  readonly issuedMs: number;
  readonly holdS: number;
  readonly keys: readonly NamespaceKey[];
}

/** What a relayer holds a header against. */
export interface Expected {
  readonly secrets: readonly Uint8Array[];
  readonly relayer: string;
  readonly account: string;
  readonly sender: Uint8Array;
  readonly nowMs: number;
}

/** Returns what a header holds, as a relayer with these X25519 secrets sees it. */
export function openUnlock(header: string, expected: Expected): OpenedUnlock {
  try {
    return openHeader(header, expected);
  } catch (error) {
    if (!(error instanceof Invalid) || error.code === "unlock_key_unknown") throw error;
    throw new Invalid("unlock_rejected", error.message);
  }
}

function openHeader(header: string, expected: Expected): OpenedUnlock {
  const data = decode(header);
  const count = data[1] ?? 0;
  if (data[0] !== 1 || count < 1 || count > 8 || data.length < 2 + ENTRY_BYTES * count + 40) {
    throw new Invalid("size", "The header is of another version, or cut.");
  }
  const end = 2 + ENTRY_BYTES * count;
  const contentKey = openEntry(data.subarray(2, end), expected);
  const sealed = data.subarray(end + 24);
  const payload = aeadOpen(contentKey, data.subarray(end, end + 24), sealed, data.subarray(0, end));
  const value = readJson(payload, ["v", "relayer", "account", "sender", "iat", "hold", "keys"]);
  const [issuedMs, holdS] = [integer(value["iat"]), integer(value["hold"])];
  const lent = value["keys"];
  if (value["v"] !== 1 || holdS > 300 || !Array.isArray(lent)) {
    throw new Invalid("hold", "The header is of another version or holds its keys too long.");
  }
  const keys = lent.map(readKey);
  const places = new Set(keys.map((key) => JSON.stringify([key.name, key.epoch])));
  if (keys.length < 1 || keys.length > 64 || places.size !== keys.length) {
    throw new Invalid("keys", "A header has 1 to 64 keys, one for a namespace and epoch.");
  }
  const isMeant =
    value["relayer"] === expected.relayer &&
    value["account"] === expected.account &&
    value["sender"] === toHex(expected.sender);
  accountBytes(value["account"]);
  if (!isMeant || Math.abs(expected.nowMs - issuedMs) > 300_000) {
    throw new Invalid("sender", "The header is for somebody else, or of another time.");
  }
  return { issuedMs, holdS, keys };
}

function decode(header: string): Bytes {
  if (header.length > 6 * 1024 || !/^[\w-]*$/.test(header)) {
    throw new Invalid("base64", "The header is too long or no base64url.");
  }
  const text = header.replaceAll("-", "+").replaceAll("_", "/");
  return fromBase64(text + "=".repeat(-text.length & 3), "header");
}

function openEntry(entries: Uint8Array, expected: Expected): Bytes {
  for (let at = 0; at < entries.length; at += ENTRY_BYTES) {
    const entry = entries.subarray(at, at + ENTRY_BYTES);
    for (const secret of expected.secrets) {
      const kid = hash256(exchangePublicOf(secret)).subarray(0, 8);
      if (!sameBytes(kid, entry.subarray(0, 8))) continue;
      const key = boxKey(exchangePublic(expected.sender), secret);
      return boxOpen(key, entry.subarray(8, 32), entry.subarray(32));
    }
  }
  throw new Invalid("unlock_key_unknown", "No box is for a live unlock key.");
}

function readKey(entry: JsonValue): NamespaceKey {
  if (!hasMembers(entry, ["ns", "epoch", "key"])) {
    throw new Invalid("members", "A key has the members ns, epoch and key.");
  }
  const name = settleNamespace(textOf(entry["ns"]));
  const key = exact(fromBase64(entry["key"], "key"), 32, "key");
  return new NamespaceKey(key, checkEpoch(entry["epoch"]), name);
}

/** Returns the two marks by which a relayer recognises a caller's idempotency key. */
export function idempotencyMarks(
  key: NamespaceKey,
  given: { writer: Uint8Array; route: string; item: number; key: string; text: string },
): { mark: Bytes; textMark: Bytes } {
  const subkey = key.subkey("idempotency");
  const where = [given.writer, utf8(given.route), u32(given.item), utf8(given.key)];
  return {
    mark: mac(16, subkey, "key", ...where),
    textMark: mac(16, subkey, "text", utf8(given.text)),
  };
}
