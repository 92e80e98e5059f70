/**
 * The request of a new key to be let in: made where the key stays, carried as text, read by owners.
 *
 * - It holds nothing secret, and no private key.
 * - The new key signs all of it: whoever alters a byte, or has not that key, is noticed.
 * - The text is base32, since chats take other characters for marks; white space means nothing.
 *
 * Source: SPEC.md §4.2.
 */

import { type Bytes, concat, fromUtf8, sameBytes, toHex, utf8, viewOf } from "../bytes.ts";
import { Invalid } from "../errors.ts";
import { writeJson } from "./json.ts";
import { type Identity, publicKeyBytes } from "./keys.ts";
import { joinPayload, signJoin, SIGNATURE_BYTES, verifySignature } from "./objects.ts";
import { hashOf } from "./primitives.ts";

const PREFIX = "memrelay-join:";
const TEXT_CHARACTERS_MAX = 1024 * 1024;
const LABEL_BYTES_MAX = 64;
const CLOCK_SKEW_MS_MAX = 600_000;
const VERSION = 1;
const HEAD_BYTES = 1 + 2 + 32 + 32 + 8 + 8 + 1 + 1;
const ACCOUNT_BYTES = 32;
const TAIL_BYTES = 2 * SIGNATURE_BYTES;
const BYTES_MAX = HEAD_BYTES + ACCOUNT_BYTES + LABEL_BYTES_MAX + TAIL_BYTES;
const LENGTH_CHARACTERS = 8; // in which version and length stand: 5 bytes
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
// What wrapping, quoting and marking put between the characters of a text.
const MEANINGLESS = /[\s>|"'`*_=\u00ad\u200b-\u200f\u2060\ufeff]+/g;

/** A verified request; `account` is null if its maker did not know which one admits it. */
export interface JoinRequest {
  readonly relayer: Bytes;
  readonly recipient: Bytes;
  readonly account: Bytes | null;
  readonly createdMs: number;
  readonly expiresMs: number;
  readonly label: string;
  readonly join: Bytes;
}

/** What a new request says; a longer label is cut to 64 bytes. */
export interface NewJoinRequest {
  readonly relayer: Uint8Array;
  readonly account: Uint8Array | null;
  readonly createdMs: number;
  readonly expiresMs: number;
  readonly label: string;
}

/**
 * Checks that a request is for this account at this relayer, and of this time.
 *
 * @throws {Invalid} `request.relayer`, `request.account`, `request.stale` or `request.early`.
 */
export function checkJoinRequest(
  request: JoinRequest,
  expected: { readonly relayer: Uint8Array; readonly account: Uint8Array; readonly nowMs: number },
): void {
  const which = `The request of ${makeFingerprint(request.recipient)}`;
  if (!sameBytes(request.relayer, expected.relayer)) {
    throw new Invalid(
      "request.relayer",
      `${which} was made for another relayer, with the key ${toHex(request.relayer)}. ` +
        "Make it anew with this relayer's address.",
    );
  }
  if (request.account !== null && !sameBytes(request.account, expected.account)) {
    throw new Invalid("request.account", `${which} was made for another account than yours.`);
  }
  if (request.expiresMs <= expected.nowMs) {
    throw new Invalid("request.stale", `${which} is stale: make a new one.`);
  }
  if (request.createdMs > expected.nowMs + CLOCK_SKEW_MS_MAX) {
    throw new Invalid("request.early", `${which} is of the future: compare both clocks.`);
  }
}

/** Returns 80 bits of a hash of a public key or account id, in four groups for people. */
export function makeFingerprint(publicBytes: Uint8Array): string {
  const digest = hashOf(10, concat(utf8("memrelay/fingerprint/v1\0"), publicBytes));
  return encode(digest).match(/.{4}/g)!.join("-");
}

/** Returns the text of a new request of an identity. */
export function writeJoinRequest(identity: Identity, given: NewJoinRequest): string {
  const name = cutText(given.label, LABEL_BYTES_MAX);
  const account = given.account ?? new Uint8Array(0);
  const joining = { account: given.account, issuer: null, relayer: given.relayer };
  const joined = signJoin(identity, joining).slice(-SIGNATURE_BYTES);
  const size = HEAD_BYTES + account.length + name.length + TAIL_BYTES;
  const times = new Uint8Array(16);
  viewOf(times).setBigUint64(0, BigInt(given.createdMs));
  viewOf(times).setBigUint64(8, BigInt(given.expiresMs));
  const head = concat(
    Uint8Array.of(VERSION, size >> 8, size & 255),
    given.relayer,
    identity.publicKey,
    times,
    Uint8Array.of(account.length, name.length),
  );
  const signed = concat(head, account, name, joined);
  return PREFIX + encode(concat(signed, identity.sign(requestText(signed))));
}

/** Returns the beginning of a text, in whole characters, as UTF-8 of at most so many bytes. */
function cutText(text: string, bytesMax: number): Bytes {
  let cut = utf8(text);
  for (let end = bytesMax; cut.length > bytesMax; end--) {
    const isWhole = ((utf8(text)[end] ?? 0) & 0xc0) !== 0x80;
    if (isWhole) cut = cut.slice(0, end);
  }
  return cut;
}

/**
 * Returns the requests that a text holds, in its order; it may be wrapped and quoted.
 *
 * @throws {Invalid} `request.none`, `request.long`; for one of them, `request.cut`,
 *   `request.version` or `request.altered`.
 */
export function readJoinRequests(text: string): JoinRequest[] {
  if (text.length > TEXT_CHARACTERS_MAX) {
    throw new Invalid("request.long", "That is too long: requests are read up to a MiB of text.");
  }
  const parts = text.replace(MEANINGLESS, "").toLowerCase().split(PREFIX).slice(1);
  if (parts.length === 0) {
    throw new Invalid(
      "request.none",
      `There is no request in that: one begins with ${PREFIX} and is copied from there on.`,
    );
  }
  return parts.map((part, at) => {
    const which = parts.length === 1 ? "The request" : `Request ${at + 1} of ${parts.length}`;
    try {
      return readOne(decodePart(part));
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      throw new Invalid(error.code, `${which} ${error.message}`);
    }
  });
}

function decodePart(part: string): Bytes {
  const run = /^[a-z2-7]*/.exec(part)![0];
  if (run.length < LENGTH_CHARACTERS) {
    throw new Invalid("request.cut", "was cut right behind its beginning: copy all of it.");
  }
  const start = viewOf(decode(run.slice(0, LENGTH_CHARACTERS)));
  if (start.getUint8(0) !== VERSION) {
    throw new Invalid("request.version", "is of another version of memrelay, or was altered.");
  }
  const size = start.getUint16(1);
  if (size < HEAD_BYTES + TAIL_BYTES || size > BYTES_MAX) throw altered();
  const count = Math.ceil((size * 8) / 5);
  if (run.length < count) {
    if (run.length < part.length) throw altered();
    const told = `was cut: ${run.length} of its ${count} characters came. Copy all of it.`;
    throw new Invalid("request.cut", told);
  }
  const data = decode(run.slice(0, count)); // what stands behind it is not its own
  if (encode(data) !== run.slice(0, count)) throw altered();
  return data;
}

function readOne(data: Bytes): JoinRequest {
  const view = viewOf(data);
  const [relayer, recipient] = [data.slice(3, 35), data.slice(35, 67)];
  const [accountBytes, labelBytes] = [data[83]!, data[84]!];
  const isOfForm = accountBytes === 0 || accountBytes === ACCOUNT_BYTES;
  const labelAt = HEAD_BYTES + accountBytes;
  if (!isOfForm || data.length !== labelAt + labelBytes + TAIL_BYTES) throw altered();
  const account = accountBytes === 0 ? null : data.slice(HEAD_BYTES, labelAt);
  const joined = data.slice(-TAIL_BYTES, -SIGNATURE_BYTES);
  const members = joinPayload(recipient, { account, issuer: null, relayer });
  const payload = writeJson({ v: 1, ...members });
  const signed = data.slice(0, -SIGNATURE_BYTES);
  let label: string;
  try {
    publicKeyBytes(toHex(recipient));
    verifySignature("request", signed, data.slice(-SIGNATURE_BYTES), recipient);
    verifySignature("join", payload, joined, recipient);
    label = fromUtf8(data.slice(labelAt, labelAt + labelBytes));
  } catch {
    throw altered();
  }
  return {
    relayer,
    recipient,
    account,
    createdMs: Number(view.getBigUint64(67)),
    expiresMs: Number(view.getBigUint64(75)),
    label: label.replace(/[\p{C}\p{Z}]/gu, (char) => (char === " " ? char : "")),
    join: concat(payload, joined),
  };
}

function altered(): Invalid {
  return new Invalid("request.altered", "was altered on its way: have it sent again.");
}

function requestText(signed: Uint8Array): Bytes {
  return concat(utf8("memrelay/request/v1\0"), signed);
}

function encode(data: Uint8Array): string {
  let [text, bits, held] = ["", 0, 0];
  for (const byte of data) {
    bits = ((bits << 8) | byte) & 0xfff;
    for (held += 8; held >= 5; held -= 5) text += BASE32[(bits >> (held - 5)) & 31]!;
  }
  return held > 0 ? text + BASE32[(bits << (5 - held)) & 31]! : text;
}

function decode(text: string): Bytes {
  const data = new Uint8Array(Math.floor((text.length * 5) / 8));
  let [bits, held, at] = [0, 0, 0];
  for (const char of text) {
    bits = ((bits << 5) | BASE32.indexOf(char)) & 0xfff;
    held += 5;
    if (held >= 8) {
      held -= 8;
      data[at++] = (bits >> held) & 255;
    }
  }
  return data;
}
