/**
 * The grants and revocations of one account, judged as a whole, and the keys they give.
 *
 * Not here: the objects' bytes (`grants.ts`, `objects.ts`), requests.
 *
 * - It believes no relayer: every right follows from signatures that lead back to the founder, whose
 *   key hashes to the account id.
 * - Objects are judged in the order of their serials, each against those before it; one that is not
 *   valid stops everything.
 *
 * Source: SPEC.md §4.1, §4.2.
 */

import { type Bytes, sameBytes, toHex } from "../bytes.ts";
import { Invalid, NotGranted, UntrustedGrant } from "../errors.ts";
import {
  CHAIN_GRANTS_MAX,
  type Grant,
  isExpired,
  namesNamespace,
  openGrant,
  readGrant,
  type Role,
  translating,
} from "./grants.ts";
import {
  accountIdOf,
  accountText,
  type Identity,
  NamespaceKey,
  publicKeyBytes,
  Root,
} from "./keys.ts";
import { normaliseNamespace } from "./names.ts";
import { integer, readObject, signObject, textOf } from "./objects.ts";
import { readSuccessor } from "./statement.ts";

/** A verified signature that withdraws every earlier grant of one key. */
export interface Revocation {
  readonly kind: "revoke";
  readonly account: string;
  readonly serial: number;
  readonly issuer: Bytes;
  readonly recipient: Bytes;
  readonly createdMs: number;
}

/** What a new revocation says. */
export interface NewRevocation {
  readonly account: Uint8Array;
  readonly serial: number;
  readonly recipient: Uint8Array;
  readonly createdMs: number;
}

/** Returns a signed object that withdraws every earlier grant of a key. */
export function issueRevocation(issuer: Identity, given: NewRevocation): Bytes {
  const payload = {
    account: accountText(given.account),
    serial: given.serial,
    issuer: issuer.publicKeyHex,
    recipient: toHex(given.recipient),
    created: given.createdMs,
  };
  return signObject("revoke", payload, issuer);
}

/**
 * Returns a revocation whose signature verifies under the issuer that it names.
 *
 * @throws {UntrustedGrant} the failed check.
 */
export function readRevocation(data: Uint8Array): Revocation {
  return translating("A revocation", () => {
    const value = readObject("revoke", data, "issuer");
    return {
      kind: "revoke",
      account: textOf(value["account"]),
      serial: integer(value["serial"], 1),
      issuer: publicKeyBytes(value["issuer"]),
      recipient: publicKeyBytes(value["recipient"]),
      createdMs: integer(value["created"]),
    };
  });
}

/** A grant or a revocation as it was signed, and which of both it is said to be. */
export interface SignedEntry {
  readonly kind: string;
  readonly object: Uint8Array;
}

function readEntry(entry: SignedEntry): Grant | Revocation {
  if (entry.kind === "grant") return readGrant(entry.object);
  if (entry.kind === "revoke") return readRevocation(entry.object);
  throw new UntrustedGrant("kind", "A grant has an unknown kind.");
}

/** One right to issue: the role it comes from and its distance from the founder, in grants. */
interface Authority {
  readonly role: Role;
  readonly depth: number;
}

/** A grant, with the length of the shortest chain that leads to it. */
interface JudgedGrant {
  readonly grant: Grant;
  readonly depth: number;
}

/** The valid grants and revocations of one account, as far as this key may see them. */
export class Ledger {
  readonly #account: Bytes;
  readonly #accountText: string;
  readonly #grants: JudgedGrant[] = [];
  readonly #revocations: Revocation[] = [];
  readonly #successors = new Map<string, string>();
  #serial = 0;
  #isComplete = true;

  constructor(account: Uint8Array) {
    this.#account = account as Bytes;
    this.#accountText = accountText(account);
  }

  /**
   * Returns the ledger of signed objects, in any order.
   *
   * `succession` are the `relayer-next` objects that custodians' grants to their successors rest on.
   *
   * @throws {UntrustedGrant} the first check that failed.
   */
  static of(
    account: Uint8Array,
    objects: readonly SignedEntry[],
    succession: readonly Uint8Array[] = [],
  ): Ledger {
    const entries = objects.map(readEntry);
    const ledger = new Ledger(account);
    for (const data of succession) ledger.learn(data);
    for (const entry of entries.sort((left, right) => left.serial - right.serial)) {
      ledger.add(entry);
    }
    return ledger;
  }

  /** The highest serial. */
  get serial(): number {
    return this.#serial;
  }

  /** True if every serial from 1 on was seen. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /**
   * Takes note of the successor that a relayer names in a `relayer-next` object.
   *
   * @throws {UntrustedGrant} `successor`, when it named another one before; or the failed check.
   */
  learn(data: Uint8Array): void {
    const named = translatingRelayer(() => readSuccessor(data));
    const [relayer, next] = [toHex(named.relayer), toHex(named.next)];
    const known = this.#successors.get(relayer);
    if (known !== undefined && known !== next) {
      throw new UntrustedGrant("successor", "A relayer names one successor.");
    }
    this.#successors.set(relayer, next);
  }

  /**
   * Judges and keeps the next object; serials rise.
   *
   * @throws {UntrustedGrant} `account`, `serial`, `issuer`, `chain` or `role`: the failed rule.
   */
  add(entry: Grant | Revocation): void {
    if (entry.account !== this.#accountText) {
      throw new UntrustedGrant("account", "A grant is of another account.");
    }
    if (entry.serial <= this.#serial) {
      throw new UntrustedGrant("serial", "Two grants have the same serial.");
    }
    if (entry.kind === "grant") {
      this.#grants.push({ grant: entry, depth: this.#judgeGrant(entry) });
    } else {
      this.#judgeRevocation(entry);
      this.#revocations.push(entry);
    }
    this.#isComplete &&= entry.serial === this.#serial + 1;
    this.#serial = entry.serial;
  }

  #judgeGrant(grant: Grant): number {
    let authorities = this.#authorities(grant);
    if (authorities.length === 0) {
      throw new UntrustedGrant("issuer", "A grant's issuer had no right to issue it.");
    }
    if (grant.role === "custodian") {
      const owners = authorities.filter((entry) => entry.role === "owner");
      const successor = this.#successors.get(toHex(grant.issuer));
      if (owners.length === 0 && successor === toHex(grant.recipient)) {
        // The same relayer under its next key: it stands where it stood.
        return Math.min(...authorities.map((entry) => entry.depth));
      }
      authorities = owners;
      if (owners.length === 0) {
        throw new UntrustedGrant("role", "Only an owner makes a custodian.");
      }
    }
    const depth = 1 + Math.min(...authorities.map((entry) => entry.depth));
    if (depth > CHAIN_GRANTS_MAX) {
      throw new UntrustedGrant("chain", "A chain of issuers is at most 4 grants long.");
    }
    return depth;
  }

  #judgeRevocation(revocation: Revocation): void {
    const authorities = this.#authorities(revocation);
    if (authorities.length === 0) {
      throw new UntrustedGrant("issuer", "A revocation's issuer had no right to revoke.");
    }
    const byOwner = authorities.some((entry) => entry.role === "owner");
    if (!byOwner && this.#isOwner(revocation.recipient, revocation.createdMs)) {
      throw new UntrustedGrant("role", "A custodian revokes no owner.");
    }
    if (this.isFounder(revocation.recipient) && !this.isFounder(revocation.issuer)) {
      throw new UntrustedGrant("role", "Only the founder revokes the founder.");
    }
  }

  #authorities(entry: Grant | Revocation): Authority[] {
    const found: Authority[] = this.isFounder(entry.issuer) ? [{ role: "owner", depth: 0 }] : [];
    for (const { grant, depth } of this.#grants) {
      const mayIssue = grant.role === "owner" || grant.role === "custodian";
      if (
        mayIssue &&
        sameBytes(grant.recipient, entry.issuer) &&
        !this.#isWithdrawn(grant) &&
        !isExpired(grant, entry.createdMs)
      ) {
        found.push({ role: grant.role, depth });
      }
    }
    return found;
  }

  /** Returns whether a key founded the account. */
  isFounder(publicKey: Uint8Array): boolean {
    return sameBytes(accountIdOf(publicKey), this.#account);
  }

  #isOwner(publicKey: Uint8Array, atMs: number): boolean {
    const held = this.listGrantsTo(publicKey, atMs);
    return this.isFounder(publicKey) || held.some((grant) => grant.role === "owner");
  }

  #isWithdrawn(grant: Grant): boolean {
    return this.#revocations.some(
      (entry) => entry.serial > grant.serial && sameBytes(entry.recipient, grant.recipient),
    );
  }

  /** Returns the grants that count for a key at this time. */
  listGrantsTo(publicKey: Uint8Array, atMs: number): Grant[] {
    return this.#grants
      .map((judged) => judged.grant)
      .filter(
        (grant) =>
          sameBytes(grant.recipient, publicKey) &&
          !this.#isWithdrawn(grant) &&
          !isExpired(grant, atMs),
      );
  }

  /** Returns every key that was ever granted anything, in order of its first grant. */
  recipients(): Bytes[] {
    const keys = this.#grants.map(
      ({ grant }) => [toHex(grant.recipient), grant.recipient] as const,
    );
    return [...new Map(keys).values()];
  }

  /** Returns every key that holds anything at this time, with the grants that count for it. */
  holders(atMs: number): { readonly publicKey: Bytes; readonly grants: readonly Grant[] }[] {
    return this.recipients()
      .map((publicKey) => ({ publicKey, grants: this.listGrantsTo(publicKey, atMs) }))
      .filter((holder) => holder.grants.length > 0);
  }

  /** Returns whether a key was ever granted a namespace by name, even if not any more. */
  hasGranted(namespace: string, publicKey: Uint8Array): boolean {
    return this.#grants.some(
      ({ grant }) => sameBytes(grant.recipient, publicKey) && namesNamespace(grant, namespace),
    );
  }

  /** Returns whether a key was ever withdrawn. */
  isRevoked(publicKey: Uint8Array): boolean {
    return this.#revocations.some((entry) => sameBytes(entry.recipient, publicKey));
  }

  /** Returns whether a founder is not even shown the grant that the account begins with. */
  hidesFrom(publicKey: Uint8Array): boolean {
    return this.isFounder(publicKey) && this.#grants.every(({ grant }) => grant.serial !== 1);
  }

  /** Returns whether this relayer is a custodian of the account. */
  isManagedBy(relayer: Uint8Array, atMs: number): boolean {
    return this.listGrantsTo(relayer, atMs).some((grant) => grant.role === "custodian");
  }

  /**
   * Returns the keys that `identity` holds at this time.
   *
   * @throws {UntrustedGrant} a grant to `identity` does not open or holds another key.
   */
  keyring(identity: Identity, atMs: number): Keyring {
    const keyring = new Keyring(this.#account);
    const held = this.listGrantsTo(identity.publicKey, atMs);
    const oldest = oldestEpoch(held);
    for (const grant of held) {
      keyring.roles.add(grant.role);
      for (const key of openGrant(grant, identity)) if (key.epoch >= oldest) keyring.add(key);
    }
    return keyring;
  }
}

function translatingRelayer<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Invalid) throw new UntrustedGrant(error.code, error.message);
    throw error;
  }
}

/** Returns the oldest epoch that is alive: the lowest that the newest of these grants names. */
export function oldestEpoch(held: readonly Grant[]): number {
  if (held.length === 0) return 0;
  const newest = held.reduce((best, grant) => (grant.serial > best.serial ? grant : best));
  return Math.min(...newest.scope.map((entry) => entry.epoch));
}

/** The keys that one identity holds: roots by epoch, namespace keys by name and epoch. */
export class Keyring {
  readonly roles = new Set<Role>();
  readonly #account: Bytes;
  readonly #roots = new Map<number, Root>();
  readonly #named = new Map<string, Map<number, NamespaceKey>>();

  constructor(account: Uint8Array) {
    this.#account = account as Bytes;
  }

  /**
   * Keeps a key.
   *
   * @throws {UntrustedGrant} `keys`, when two grants give different keys for the same place.
   */
  add(key: Root | NamespaceKey): void {
    if (key instanceof Root) keepSame(this.#roots, key);
    else {
      const epochs = this.#named.get(key.name) ?? new Map<number, NamespaceKey>();
      this.#named.set(key.name, epochs);
      keepSame(epochs, key);
    }
  }

  /** The newest epoch of any key, 0 without one. */
  get epoch(): number {
    const named = [...this.#named.values()].flatMap((epochs) => [...epochs.keys()]);
    return Math.max(0, ...this.#roots.keys(), ...named);
  }

  /** True if the identity holds a root. */
  get isWholeAccount(): boolean {
    return this.#roots.size > 0;
  }

  /** The namespaces of named keys; a root opens any other as well. */
  get names(): string[] {
    return [...this.#named.keys()].sort();
  }

  /**
   * Returns the roots of every live epoch, oldest first.
   *
   * @throws {NotGranted} this identity holds none.
   */
  roots(): Root[] {
    if (this.#roots.size === 0) throw new NotGranted("This key does not hold the whole account.");
    return [...this.#roots.values()].sort((left, right) => left.epoch - right.epoch);
  }

  /**
   * Returns the keys of a namespace in every live epoch, oldest first.
   *
   * @throws {NotGranted} no grant covers it.
   */
  namespaceKeys(namespace: string): NamespaceKey[] {
    const name = normaliseNamespace(namespace);
    const keys = new Map<number, NamespaceKey>();
    for (const [epoch, root] of this.#roots)
      keys.set(epoch, root.namespaceKey(this.#account, name));
    for (const [epoch, key] of this.#named.get(name) ?? []) keys.set(epoch, key);
    if (keys.size === 0) {
      throw new NotGranted(`This key holds no grant for the namespace ${JSON.stringify(name)}.`);
    }
    return [...keys.values()].sort((left, right) => left.epoch - right.epoch);
  }
}

function keepSame<Key extends Root | NamespaceKey>(known: Map<number, Key>, key: Key): void {
  const before = known.get(key.epoch);
  if (before !== undefined && !sameBytes(before.key, key.key)) {
    throw new UntrustedGrant("keys", "Two grants give different keys for the same epoch.");
  }
  known.set(key.epoch, before ?? key);
}
