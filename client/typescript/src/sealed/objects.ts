/**
 * Signed objects of every kind, and the proof of joining an account.
 *
 * Not here: what the other kinds mean (`grants.ts`, `ledger.ts`, `statement.ts`, `receipts.ts`).
 *
 * - A signed object is kept as the bytes it came in and never serialised again.
 * - Nothing of a payload is used before its signature verified, save the member that names the
 *   signer where the caller has no other way to know whose signature to expect.
 *
 * Source: SPEC.md §4, §4.2.
 */

import { type Bytes, concat, toHex, utf8 } from "../bytes.ts";
import { Invalid } from "../errors.ts";
import {
  type JsonObject,
  type JsonValue,
  hasMembers,
  OBJECT_BYTES_MAX,
  readStrict,
  writeJson,
} from "./json.ts";
import { accountText, type Identity, publicKeyBytes } from "./keys.ts";
import { exact, KEY_BYTES, verify } from "./primitives.ts";

export const SIGNATURE_BYTES = 64;

/** The members of each payload beside `v`, which is always 1. */
const MEMBERS = {
  grant: "account grant serial issuer recipient role scope created expires box",
  revoke: "account serial issuer recipient created",
  join: "account issuer recipient relayer",
  relayer: "relayer issued unlock_keys",
  "relayer-next": "relayer next created",
  receipt: "relayer account seq prev time op actor namespace epoch items serial",
  state: "relayer account memory revision seq time expires_at state",
  namespace: "relayer account namespace epoch key_id",
  archive: "archive account created signer relayer boxes",
  checkpoint: "relayer account seq head grant_serial time",
} as const;

/** The kind of a signed object. */
export type Kind = keyof typeof MEMBERS;

function membersOf(kind: Kind): string[] {
  return ["v", ...MEMBERS[kind].split(" ")];
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * Returns `value` if it is a lower-case UUID with hyphens.
 *
 * @throws {Invalid} `uuid`, when it is not.
 */
export function uuidText(value: unknown): string {
  if (typeof value !== "string" || !UUID.test(value)) {
    throw new Invalid("uuid", "An id is a lower-case UUID with hyphens.");
  }
  return value;
}

/**
 * Returns `value` if it is a whole number from `least`.
 *
 * @throws {Invalid} `integer`, when it is not.
 */
export function integer(value: unknown, least = 0): number {
  if (!Number.isSafeInteger(value) || (value as number) < least) {
    throw new Invalid("integer", `A whole number from ${least} is expected.`);
  }
  return value as number;
}

/**
 * Returns `value` if it is text.
 *
 * @throws {Invalid} `text`, when it is not.
 */
export function textOf(value: unknown): string {
  if (typeof value !== "string") throw new Invalid("text", "Text is expected.");
  return value;
}

/**
 * Returns `value` if it is a list.
 *
 * @throws {Invalid} `list`, when it is not.
 */
export function listOf(value: unknown): JsonValue[] {
  if (!Array.isArray(value)) throw new Invalid("list", "A list is expected.");
  return value as JsonValue[];
}

/**
 * Returns payload and signature; `v` is added in front.
 *
 * @throws {Invalid} `json`, when the payload is longer than 64 KiB.
 */
export function signObject(
  kind: Kind,
  payload: Readonly<Record<string, unknown>>,
  signer: Identity,
): Bytes {
  const data = writeJson({ v: 1, ...payload });
  if (data.length > OBJECT_BYTES_MAX) throw new Invalid("json", "The object is over 64 KiB.");
  return concat(data, signer.sign(signedText(kind, data)));
}

/**
 * Returns the payload of a signed object.
 *
 * `signer` is the public key, or the name of the payload's own member that holds it: then the
 * caller must establish by other means that this key may sign.
 *
 * @throws {Invalid} `signature`, or what strict JSON says; `version`, when `v` is not 1.
 */
export function readObject(kind: Kind, data: Uint8Array, signer: Uint8Array | string): JsonObject {
  const payload = payloadOf(data);
  const key =
    typeof signer === "string" ? publicKeyBytes(readPayload(kind, payload)[signer]) : signer;
  verifySignature(kind, payload, data.subarray(payload.length), key);
  const { v, ...value } = readPayload(kind, payload);
  if (v !== 1) throw new Invalid("version", "The object has a version this client does not know.");
  return value;
}

function readPayload(kind: Kind, payload: Uint8Array): JsonObject {
  const value = readStrict(payload);
  if (!hasMembers(value, membersOf(kind))) {
    throw new Invalid("members", "The object lacks a member or has one too many.");
  }
  return value;
}

function payloadOf(data: Uint8Array): Uint8Array {
  return data.subarray(0, Math.max(0, data.length - SIGNATURE_BYTES));
}

/**
 * Returns a member of a signed object that is *not verified yet*: only to choose a key by.
 *
 * @throws {Invalid} `json`, when it is not strict JSON; `members`, when it lacks the member.
 */
export function readClaimedMember(data: Uint8Array, name: string): JsonValue {
  const value = readStrict(payloadOf(data));
  if (!Object.hasOwn(value, name)) throw new Invalid("members", "The object lacks a member.");
  return value[name]!;
}

/**
 * Checks the signature of a payload of this kind.
 *
 * @throws {Invalid} `signature`.
 */
export function verifySignature(
  kind: string,
  payload: Uint8Array,
  signature: Uint8Array,
  signer: Uint8Array,
): void {
  if (signature.length !== SIGNATURE_BYTES) {
    throw new Invalid("signature", "A signed object is longer than its signature.");
  }
  exact(signer, KEY_BYTES, "public key");
  if (!verify(signature, signedText(kind, payload), signer)) {
    throw new Invalid("signature", "A signature does not verify.");
  }
}

function signedText(kind: string, payload: Uint8Array): Bytes {
  return concat(utf8(`memrelay/${kind}/v1\0`), payload);
}

/** What a proof of joining names; null agrees to any. */
export interface Joining {
  readonly account: Uint8Array | null;
  readonly issuer: Uint8Array | null;
  readonly relayer: Uint8Array;
}

/** Returns the proof that the holder of `recipient` wants to join an account at a relayer. */
export function signJoin(recipient: Identity, joining: Joining): Bytes {
  return signObject("join", joinPayload(recipient.publicKey, joining), recipient);
}

/** Returns the members of a proof of joining, in the order in which they are signed. */
export function joinPayload(recipient: Uint8Array, joining: Joining): Record<string, unknown> {
  return {
    account: joining.account && accountText(joining.account),
    issuer: joining.issuer && toHex(joining.issuer),
    recipient: toHex(recipient),
    relayer: toHex(joining.relayer),
  };
}
