/**
 * Envelopes: their header, the record inside, its padding, their name.
 *
 * - Everything that places an envelope (account, memory, revision, epoch, key) is bound into it, so
 *   a swapped row or an old revision fails to open.
 *
 * Source: SPEC.md §7.
 */

import { type Bytes, concat, sameBytes, toBase64Url, toHex, u32, viewOf } from "../bytes.ts";
import { Invalid } from "../errors.ts";
import type { NamespaceKey } from "./keys.ts";
import { aeadOpen, aeadSeal, exact, hash256, NONCE_BYTES, randomBytes } from "./primitives.ts";

export const MEMORY = 1;
export const EPISODE = 2;
export const SUMMARY = 3;

const VERSION = 1;
const SUITE = 1;
const HEADER_BYTES = 124;
const ENVELOPE_BYTES_MIN = 396;
const STEP_BYTES_MIN = 256;

/** The place that an envelope is bound to beside its key: the type, the account and the row. */
export interface Place {
  readonly type: number;
  readonly account: Uint8Array;
  readonly memory: string;
  readonly revision: number;
}

/** The part of an envelope that anybody can read; its key alone can tell whether it is true. */
export interface EnvelopeHeader extends Place {
  readonly epoch: number;
  readonly createdMs: number;
  readonly keyId: Bytes;
}

/** Returns `u32 length ‖ record ‖ zeros`, at most about a tenth longer than the record. */
export function pad(record: Uint8Array): Bytes {
  const length = 4 + record.length;
  const power = bitLength(length) - 1;
  const step = Math.max(STEP_BYTES_MIN, 2 ** (power - bitLength(power)));
  const padded = new Uint8Array(Math.ceil(length / step) * step);
  padded.set(u32(record.length));
  padded.set(record, 4);
  return padded;
}

function bitLength(value: number): number {
  return 32 - Math.clz32(value);
}

/**
 * Returns the record inside a padded plaintext.
 *
 * @throws {Invalid} `padding`, when the length is too great, or the padding is not what is due.
 */
export function unpad(plaintext: Uint8Array): Bytes {
  const length = viewOf(plaintext).getUint32(0);
  const record = plaintext.slice(4, 4 + length);
  if (record.length !== length || !sameBytes(pad(record), plaintext)) {
    throw new Invalid("padding", "An envelope's padding is damaged.");
  }
  return record as Bytes;
}

/** Returns the 16 bytes of a UUID. */
export function uuidBytes(uuid: string): Bytes {
  const hex = uuid.replaceAll("-", "");
  return Uint8Array.from({ length: 16 }, (_, at) => parseInt(hex.slice(2 * at, 2 * at + 2), 16));
}

function uuidOf(data: Uint8Array): string {
  return toHex(data).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/**
 * Returns the header of an envelope.
 *
 * @throws {Invalid} `length` or `version`.
 */
export function readEnvelopeHeader(envelope: Uint8Array): EnvelopeHeader {
  if (envelope.length < ENVELOPE_BYTES_MIN) {
    throw new Invalid("length", "An envelope has at least 396 bytes.");
  }
  if (envelope[0] !== VERSION || envelope[1] !== SUITE || envelope[3] !== 0) {
    throw new Invalid("version", "An envelope is of a version that this client does not know.");
  }
  const view = viewOf(envelope);
  return {
    type: envelope[2]!,
    epoch: view.getUint32(4),
    createdMs: Number(view.getBigUint64(8)),
    account: envelope.slice(16, 48),
    memory: uuidOf(envelope.subarray(48, 64)),
    revision: view.getUint32(64),
    keyId: envelope.slice(68, 100) as Bytes,
  };
}

/**
 * Returns the record of an envelope that stands where `place` says.
 *
 * @throws {Invalid} `length`, `version`, `type`, `account`, `memory`, `revision`, `epoch`,
 *   `key_id`, `aead` or `padding`: the first check that failed.
 */
export function openEnvelope(place: Place, key: NamespaceKey, envelope: Uint8Array): Bytes {
  const header = readEnvelopeHeader(envelope);
  const checks: [string, boolean][] = [
    ["type", header.type === place.type],
    ["account", sameBytes(header.account, place.account)],
    ["memory", header.memory === place.memory],
    ["revision", header.revision === place.revision],
    ["epoch", header.epoch === key.epoch],
    ["key_id", sameBytes(header.keyId, key.keyId)],
  ];
  for (const [code, isSame] of checks) {
    if (!isSame) throw new Invalid(code, `An envelope has another ${code} than its row.`);
  }
  const head = envelope.subarray(0, HEADER_BYTES);
  const nonce = envelope.subarray(HEADER_BYTES - NONCE_BYTES, HEADER_BYTES);
  return unpad(aeadOpen(key.subkey("seal"), nonce, envelope.subarray(HEADER_BYTES), head));
}

/** Returns the envelope of a record; the nonce is random unless a test vector fixes it. */
export function sealEnvelope(
  place: Place,
  key: NamespaceKey,
  record: Uint8Array,
  createdMs: number,
  nonce: Uint8Array = randomBytes(NONCE_BYTES),
): Bytes {
  const created = new Uint8Array(8);
  viewOf(created).setBigUint64(0, BigInt(createdMs));
  const head = concat(
    Uint8Array.of(VERSION, SUITE, place.type, 0),
    u32(key.epoch),
    created,
    exact(place.account, 32, "account id"),
    uuidBytes(place.memory),
    u32(place.revision),
    key.keyId,
    exact(nonce, NONCE_BYTES, "nonce"),
  );
  return concat(head, aeadSeal(key.subkey("seal"), nonce, pad(record), head));
}

/** Returns the name of stored bytes: their hash in unpadded base64url. */
export function blobId(stored: Uint8Array): string {
  return toBase64Url(hash256(stored));
}
