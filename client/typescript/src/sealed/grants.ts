/**
 * Grants: issuing one, reading one, opening one's own.
 *
 * Not here: revocations and whether an issuer had the right to issue (`ledger.ts`).
 *
 * - A key leaves this module only after it was checked against the id that the grant names.
 *
 * Source: SPEC.md §4.1, §4.2.
 */

import { type Bytes, fromBase64, fromHex, sameBytes, toBase64, toHex } from "../bytes.ts";
import { Invalid, UntrustedGrant } from "../errors.ts";
import { type JsonValue, hasMembers, readJson, writeJson } from "./json.ts";
import {
  accountText,
  checkEpoch,
  type Identity,
  NamespaceKey,
  publicKeyBytes,
  Root,
} from "./keys.ts";
import { settleNamespace } from "./names.ts";
import { integer, readObject, signObject, textOf, uuidText } from "./objects.ts";
import {
  exchangePublic,
  openSealedBox,
  randomUuid,
  SEALED_BOX_EXTRA_BYTES,
  sealedBox,
} from "./primitives.ts";

export const CHAIN_GRANTS_MAX = 4;
const SCOPE_ENTRIES_MAX = 256;
const ROLES = ["owner", "writer", "reader", "custodian"] as const;
const BOX_MEMBERS = ["account", "grant", "serial", "issuer", "recipient", "keys"];

/** What a key may do. */
export type Role = (typeof ROLES)[number];

/** A key that a grant gives. */
export type GrantedKey = Root | NamespaceKey;

/** A grant's entry for one namespace in one epoch, or (with `rootId`) for the whole account. */
export type ScopeEntry =
  | { readonly namespace: string; readonly epoch: number; readonly keyId: Bytes }
  | { readonly namespace: null; readonly epoch: number; readonly rootId: Bytes };

/** A verified signature over what one key may hold; its chain is judged by `Ledger`. */
export interface Grant {
  readonly kind: "grant";
  readonly account: string;
  readonly grant: string;
  readonly serial: number;
  readonly issuer: Bytes;
  readonly recipient: Bytes;
  readonly role: Role;
  readonly scope: readonly ScopeEntry[];
  readonly createdMs: number;
  readonly expiresMs: number | null;
  readonly box: Bytes;
}

/** Returns whether a grant gives roots. */
export function isWholeAccount(grant: Grant): boolean {
  return grant.scope[0]!.namespace === null;
}

/** Returns whether a grant gives a namespace by name. */
export function namesNamespace(grant: Grant, namespace: string): boolean {
  return grant.scope.some((entry) => entry.namespace === namespace);
}

/** Returns whether a grant counts no more at this time. */
export function isExpired(grant: Grant, atMs: number): boolean {
  return grant.expiresMs !== null && grant.expiresMs <= atMs;
}

/** What a new grant says; `keys` are all roots or all keys of namespaces. */
export interface NewGrant {
  readonly account: Uint8Array;
  readonly serial: number;
  readonly recipient: Uint8Array;
  readonly role: Role;
  readonly keys: readonly GrantedKey[];
  readonly createdMs: number;
  readonly expiresMs?: number | null;
  readonly grant?: string;
}

/**
 * Returns a signed grant that boxes its keys to the recipient.
 *
 * @throws {UntrustedGrant} `role` or `scope`, when the grant would not be valid.
 */
export function issueGrant(issuer: Identity, given: NewGrant): Bytes {
  const names = {
    account: accountText(given.account),
    grant: given.grant ?? randomUuid(),
    serial: given.serial,
    issuer: issuer.publicKeyHex,
    recipient: toHex(given.recipient),
  };
  const inside = writeJson({ ...names, keys: given.keys.map((key) => toBase64(key.key)) });
  const payload = {
    ...names,
    role: given.role,
    scope: given.keys.map(scopeJson),
    created: given.createdMs,
    expires: given.expiresMs ?? null,
    box: toBase64(sealedBox(exchangePublic(given.recipient), inside)),
  };
  const signed = signObject("grant", payload, issuer);
  readGrant(signed);
  return signed;
}

function scopeJson(key: GrantedKey): Record<string, unknown> {
  return key instanceof Root
    ? { epoch: key.epoch, root_id: toHex(key.rootId) }
    : { ns: key.name, epoch: key.epoch, key_id: toHex(key.keyId) };
}

/**
 * Returns a grant whose signature verifies under the issuer that it names.
 *
 * @throws {UntrustedGrant} the failed check.
 */
export function readGrant(data: Uint8Array): Grant {
  const grant = translating("A grant", () => {
    const value = readObject("grant", data, "issuer");
    return {
      kind: "grant" as const,
      account: textOf(value["account"]),
      grant: uuidText(value["grant"]),
      serial: integer(value["serial"], 1),
      issuer: publicKeyBytes(value["issuer"]),
      recipient: publicKeyBytes(value["recipient"]),
      role: textOf(value["role"]) as Role,
      scope: readScope(value["scope"]!),
      createdMs: integer(value["created"]),
      expiresMs: value["expires"] === null ? null : integer(value["expires"], 1),
      box: fromBase64(value["box"], "box"),
    };
  });
  if (!ROLES.includes(grant.role)) throw new UntrustedGrant("role", "A grant's role is unknown.");
  if ((grant.role === "owner" || grant.role === "custodian") && !isWholeAccount(grant)) {
    throw new UntrustedGrant("scope", "Owners and custodians hold roots.");
  }
  return grant;
}

/** Returns what `read` reads; a failed check is one of a grant. */
export function translating<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Invalid) || error instanceof UntrustedGrant) throw error;
    throw new UntrustedGrant(error.code, `${what}: ${error.message}`, { cause: error });
  }
}

function readScope(value: JsonValue): ScopeEntry[] {
  if (!Array.isArray(value) || value.length < 1 || value.length > SCOPE_ENTRIES_MAX) {
    throw new Invalid("scope", "a scope has 1 to 256 entries.");
  }
  const scope = value.map(readScopeEntry);
  const places = new Set(scope.map((entry) => JSON.stringify([entry.namespace, entry.epoch])));
  const roots = scope.filter((entry) => entry.namespace === null).length;
  if ((roots !== 0 && roots !== scope.length) || places.size !== scope.length) {
    throw new Invalid("scope", "a scope's entries are unique and of one sort.");
  }
  return scope;
}

function readScopeEntry(entry: JsonValue): ScopeEntry {
  if (hasMembers(entry, ["epoch", "root_id"])) {
    const rootId = fromHex(entry["root_id"], 32, "root id");
    return { namespace: null, epoch: checkEpoch(entry["epoch"]), rootId };
  }
  if (hasMembers(entry, ["ns", "epoch", "key_id"])) {
    const namespace = settleNamespace(textOf(entry["ns"]));
    const keyId = fromHex(entry["key_id"], 32, "key id");
    return { namespace, epoch: checkEpoch(entry["epoch"]), keyId };
  }
  throw new Invalid("scope", "a scope's entries name a namespace or a root.");
}

/**
 * Returns the keys inside a grant to `recipient`, in the order of its scope.
 *
 * @throws {UntrustedGrant} `recipient`, `box`, `keys` or `key_id`: what did not match.
 */
export function openGrant(grant: Grant, recipient: Identity): GrantedKey[] {
  if (!sameBytes(grant.recipient, recipient.publicKey)) {
    throw new UntrustedGrant("recipient", "A grant is for another key.");
  }
  const inside = openBox(grant, recipient);
  const isOfThis =
    inside["account"] === grant.account &&
    inside["grant"] === grant.grant &&
    inside["serial"] === grant.serial &&
    inside["issuer"] === toHex(grant.issuer) &&
    inside["recipient"] === toHex(grant.recipient);
  if (!isOfThis) throw new UntrustedGrant("box", "A grant's box was made for another grant.");
  const keys = inside["keys"];
  if (!Array.isArray(keys) || keys.length !== grant.scope.length) {
    throw new UntrustedGrant("keys", "A grant has one key for each entry of its scope.");
  }
  return grant.scope.map((entry, at) =>
    translating("A grant's box", () => openKey(keys[at]!, entry)),
  );
}

function openBox(grant: Grant, recipient: Identity): { [name: string]: JsonValue } {
  if (grant.box.length <= SEALED_BOX_EXTRA_BYTES) {
    throw new UntrustedGrant("box", "A grant's box is too short.");
  }
  try {
    return readJson(openSealedBox(grant.box, recipient.exchangeSecret), BOX_MEMBERS);
  } catch (error) {
    throw new UntrustedGrant("box", "A grant's box does not open.", { cause: error });
  }
}

function openKey(text: JsonValue, entry: ScopeEntry): GrantedKey {
  const data = fromBase64(text, "key");
  if (entry.namespace === null) {
    const root = new Root(data, entry.epoch);
    return matching(root, sameBytes(root.rootId, entry.rootId));
  }
  const named = new NamespaceKey(data, entry.epoch, entry.namespace);
  return matching(named, sameBytes(named.keyId, entry.keyId));
}

function matching(key: GrantedKey, matches: boolean): GrantedKey {
  if (!matches) throw new Invalid("key_id", "a key does not have the id that the grant names.");
  return key;
}
