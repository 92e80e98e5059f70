/**
 * The objects of a rotation: revocations, then the same again for everybody in every live epoch.
 *
 * Not here: requests (`../operations/rotating.ts`), what makes a grant valid (`ledger.ts`).
 *
 * - Roles, namespaces and ends stay: a rotation gives nobody more than was held before it.
 *
 * Source: SPEC.md §16.
 */

import { type Bytes, sameBytes } from "../bytes.ts";
import { type Grant, type GrantedKey, isWholeAccount, issueGrant, type Role } from "./grants.ts";
import type { Identity, Root } from "./keys.ts";
import { issueRevocation, type Ledger } from "./ledger.ts";
import { randomUuid } from "./primitives.ts";

const SCOPE_ENTRIES_MAX = 64; // of one grant here: the object stays short whatever the names are

/** The objects of one rotation in the order of their serials; `own` is the rotator's own grant. */
export interface Reissue {
  readonly epoch: number;
  readonly serial: number;
  readonly revocations: readonly Bytes[];
  readonly grants: readonly Bytes[];
  readonly own: string;
}

/** What a rotation begins with; `roots` are of every epoch that is to be alive, oldest first. */
export interface NewEpoch {
  readonly account: Uint8Array;
  readonly roots: readonly Root[];
  readonly withdrawn: readonly Uint8Array[];
  readonly relayer: Uint8Array;
  readonly nowMs: number;
}

/** What a key holds in one role until one time; null means the whole account. */
export interface Share {
  readonly role: Role;
  readonly expiresMs: number | null;
  readonly names: ReadonlySet<string> | null;
}

/**
 * Returns revocations of those withdrawn, and for every other key what it holds, under all roots.
 *
 * A custodian other than `relayer` gets nothing: it is elsewhere, or was here under an earlier key.
 */
export function reissue(ledger: Ledger, issuer: Identity, given: NewEpoch): Reissue {
  const { account, roots, nowMs } = given;
  const createdMs = nowMs;
  let serial = ledger.serial;
  const revocations = given.withdrawn.map((recipient) =>
    issueRevocation(issuer, { account, serial: ++serial, recipient, createdMs }),
  );
  const grants: Bytes[] = [];
  let own = "";
  for (const { publicKey: recipient, grants: held } of ledger.holders(nowMs)) {
    if (given.withdrawn.some((key) => sameBytes(key, recipient))) continue;
    for (const { role, expiresMs, names } of sharesOf(held, given.relayer)) {
      for (const keys of keysOf(names, account, roots)) {
        const grant = randomUuid();
        const place = { account, grant, serial: ++serial, recipient };
        grants.push(issueGrant(issuer, { ...place, role, keys, createdMs, expiresMs }));
        if (sameBytes(recipient, issuer.publicKey)) own = grant;
      }
    }
  }
  return { epoch: roots.at(-1)!.epoch, serial, revocations, grants, own };
}

/** Returns what grants give, each role and end once. */
export function sharesOf(held: readonly Grant[], relayer: Uint8Array): Iterable<Share> {
  const shares = new Map<string, Share & { readonly names: Set<string> | null }>();
  for (const grant of held) {
    const { role, expiresMs } = grant;
    if (role === "custodian" && !sameBytes(grant.recipient, relayer)) continue;
    const isWhole = isWholeAccount(grant);
    const place = JSON.stringify([role, expiresMs, isWhole]);
    const share = shares.get(place) ?? { role, expiresMs, names: isWhole ? null : new Set() };
    shares.set(place, share);
    for (const { namespace } of grant.scope) if (namespace !== null) share.names?.add(namespace);
  }
  return shares.values();
}

/** Yields the keys of as many grants as it takes; a namespace's are of every epoch. */
function* keysOf(
  names: ReadonlySet<string> | null,
  account: Uint8Array,
  roots: readonly Root[],
): Generator<readonly GrantedKey[], void> {
  if (names === null) {
    yield roots;
    return;
  }
  const sorted = [...names].sort();
  const step = Math.max(1, Math.floor(SCOPE_ENTRIES_MAX / roots.length));
  for (let at = 0; at < sorted.length; at += step) {
    yield sorted
      .slice(at, at + step)
      .flatMap((name) => roots.map((root) => root.namespaceKey(account, name)));
  }
}
