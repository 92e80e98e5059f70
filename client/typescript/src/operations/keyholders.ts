/**
 * Founding an account, and adding and revoking its keys: the operations of owners.
 *
 * Not here: the formats (`../sealed/`).
 *
 * - A custodian is made in one place, when its caller founds a managed account; no answer of a
 *   relayer leads here.
 * - A private key that is made here is returned once and kept nowhere.
 *
 * Source: SPEC.md §4.1, §4.2, §11.
 */

import { type Bytes, toBase64, toHex } from "../bytes.ts";
import type { AnswerOf, Ending, Schemas } from "../description.ts";
import { ConfigError, Conflict, NotGranted, UntrustedRelayer } from "../errors.ts";
import { type GrantedKey, issueGrant, readGrant, type Role } from "../sealed/grants.ts";
import type { JoinRequest } from "../sealed/joinRequest.ts";
import { checkJoinRequest } from "../sealed/joinRequest.ts";
import { accountIdOf, Identity, publicKeyBytes, Root } from "../sealed/keys.ts";
import { issueRevocation, type Keyring, type Ledger } from "../sealed/ledger.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { signJoin } from "../sealed/objects.ts";
import { parseList } from "../session.ts";
import { sameBytes } from "../bytes.ts";
import { Forgetting } from "./forgetting.ts";

const SERIAL_ATTEMPTS_MAX = 3;

/** What a founder chooses. */
export interface FoundingOptions extends Ending {
  /** `sealed`: nobody but its keys can read it. `managed`: the relayer can as well. */
  readonly custody?: "sealed" | "managed";
  readonly label?: string;
  /** The relayer's token, where it wants one of newcomers. */
  readonly token?: string;
}

/** What a new key may do. */
export interface KeyWish extends Ending {
  /** Null gives the whole account, which an owner needs. */
  readonly namespaces: readonly string[] | null;
  readonly role?: Exclude<Role, "custodian">;
  readonly label?: string;
  /** When it ends: a time, or so many milliseconds from now. */
  readonly expires?: Date | number;
}

/** A key that was added; `identity` is null where its holder made it. */
export interface AddedKey {
  readonly publicKey: string;
  readonly identity: Identity | null;
  readonly role: Role;
  readonly namespaces: readonly string[] | null;
  readonly grant: string;
  readonly serial: number;
  readonly label: string | null;
}

/** All operations: those on memories, and those on who may read them. */
export class Keyholders extends Forgetting {
  /** Founds the account of this client's identity. */
  async createAccount(options: FoundingOptions = {}): Promise<Schemas["NewAccountAnswer"]> {
    const { custody = "sealed", label, token, signal } = options;
    const { session } = this;
    if (!sameBytes(accountIdOf(session.identity.publicKey), session.account)) {
      throw new ConfigError("An account is founded with its founder's own key.");
    }
    const relayer = await session.relayerKey(signal);
    const grants = this.#firstGrants(relayer, custody === "managed");
    const answer = await session.call<"createAccount">({
      method: "POST",
      path: "/v1/accounts",
      body: { grants, label, token },
      namesRelayer: true,
      isRepeatable: false,
      signal,
    });
    const isAsAsked =
      answer.account_id === session.settings.accountId &&
      answer.custody === custody &&
      answer.relayer_key === toHex(relayer);
    if (!isAsAsked) {
      throw new UntrustedRelayer("account", "The relayer founded another account than asked.");
    }
    for (const receipt of parseList(answer.receipts, "receipts")) {
      await session.noteReceipt(receipt, { op: "grant" });
    }
    return answer;
  }

  #firstGrants(relayer: Uint8Array, isManaged: boolean): string[] {
    const { identity, account } = this.session;
    const keys = [Root.generate()];
    const createdMs = Date.now();
    const own = { account, serial: 1, recipient: identity.publicKey, role: "owner" } as const;
    const theirs = { account, serial: 2, recipient: relayer, role: "custodian" } as const;
    return (isManaged ? [own, theirs] : [own]).map((given) =>
      toBase64(issueGrant(identity, { ...given, keys, createdMs })),
    );
  }

  /**
   * Adds a key (a new one unless `identity` is given) that holds only what is wished.
   *
   * The identity of the result is kept nowhere else.
   */
  async addKey(wish: KeyWish & { readonly identity?: Identity }): Promise<AddedKey> {
    const names = checkWish(wish);
    const holder = wish.identity ?? Identity.generate();
    // The join names the relayer once and for all: not one that has a successor by now.
    const { relayer } = await this.session.statement(wish.signal);
    const { account } = this.session;
    const issuer = this.session.identity.publicKey;
    const join = signJoin(holder, { account, issuer, relayer });
    const added = await this.#add(holder.publicKey, join, names, wish);
    return { ...added, identity: holder };
  }

  /**
   * Adds the key that made a request, as `addKey` does; its private key stays where it is.
   *
   * @throws {Invalid} the request is for another relayer or account, or of another time.
   */
  async admit(request: JoinRequest, wish: KeyWish): Promise<AddedKey> {
    const names = checkWish(wish);
    const { relayer } = await this.session.statement(wish.signal);
    checkJoinRequest(request, { relayer, account: this.session.account, nowMs: Date.now() });
    const label = wish.label ?? request.label;
    return this.#add(request.recipient, request.join, names, { ...wish, label });
  }

  async #add(
    recipient: Uint8Array,
    join: Uint8Array,
    names: readonly string[] | null,
    wish: KeyWish,
  ): Promise<AddedKey> {
    const { role = "writer", label, expires, signal } = wish;
    const { identity, account } = this.session;
    const expiresMs = expires === undefined ? null : Number(expires) + startOf(expires);
    const { signed, answer } = await this.#nextSerial<"addGrant">(
      "/v1/grants",
      (serial, keyring) => {
        const keys = grantedKeys(keyring, names);
        const createdMs = Date.now();
        return issueGrant(identity, {
          account,
          serial,
          recipient,
          role,
          keys,
          createdMs,
          expiresMs,
        });
      },
      (object) => ({ grant: object, join: toBase64(join), label }),
      signal,
    );
    const grant = readGrant(signed);
    await this.session.noteReceipt(answer.receipt, { op: "grant", ids: [grant.grant], signed });
    return {
      publicKey: toHex(recipient),
      identity: null,
      role,
      namespaces: names,
      grant: grant.grant,
      serial: grant.serial,
      label: label ?? null,
    };
  }

  /** Returns the account's grants and revocations as they are now, verified to the founder. */
  grants(options: Ending = {}): Promise<Ledger> {
    this.session.forgetGrants();
    return this.session.ledger(options.signal);
  }

  /**
   * Withdraws every grant of a key, from its next request on.
   *
   * It still opens copies of what it could read before.
   */
  async revokeKey(publicKey: string, options: Ending = {}): Promise<Schemas["RevocationAnswer"]> {
    const recipient = publicKeyBytes(publicKey);
    const { identity, account } = this.session;
    const { signed, answer } = await this.#nextSerial<"addRevocation">(
      "/v1/revocations",
      (serial) => {
        const createdMs = Date.now();
        return issueRevocation(identity, { account, serial, recipient, createdMs });
      },
      (object) => ({ revocation: object }),
      options.signal,
    );
    await this.session.noteReceipt(answer.receipt, { op: "revoke", signed });
    if (answer.recipient !== publicKey) {
      throw new UntrustedRelayer("recipient", "The relayer revoked another key than asked.");
    }
    return answer;
  }

  /** Sends an object under the account's next serial; again if another one took it. */
  async #nextSerial<Name extends "addGrant" | "addRevocation">(
    path: string,
    build: (serial: number, keyring: Keyring) => Bytes,
    bodyOf: (object: string) => Readonly<Record<string, unknown>>,
    signal: AbortSignal | undefined,
  ): Promise<{ signed: Bytes; answer: AnswerOf<Name> }> {
    for (let attempt = 1; ; attempt++) {
      this.session.forgetGrants();
      const keyring = await this.session.keyring(signal);
      if (!keyring.roles.has("owner")) {
        throw new NotGranted("Only an owner's key adds and revokes keys.");
      }
      const ledger = await this.session.ledger(signal);
      const signed = build(ledger.serial + 1, keyring);
      try {
        const body = bodyOf(toBase64(signed));
        const more = { namesRelayer: true, isRepeatable: false, signal };
        const answer = await this.session.call<Name>({ method: "POST", path, body, ...more });
        this.session.forgetGrants();
        return { signed, answer };
      } catch (error) {
        const isTaken = error instanceof Conflict && error.code === "grant.serial";
        if (!isTaken || attempt === SERIAL_ATTEMPTS_MAX) throw error;
      }
    }
  }
}

function startOf(expires: Date | number): number {
  return typeof expires === "number" ? Date.now() : 0;
}

function grantedKeys(keyring: Keyring, names: readonly string[] | null): GrantedKey[] {
  if (names === null) return keyring.roots();
  return names.flatMap((name) => keyring.namespaceKeys(name));
}

/**
 * Returns the namespaces that a new key is to hold, null for the whole account.
 *
 * @throws {ConfigError} an owner's key is asked for some namespaces, or a key for none.
 */
function checkWish(wish: KeyWish): string[] | null {
  if (wish.namespaces === null) return null;
  if (wish.role === "owner") throw new ConfigError("An owner holds the whole account.");
  if (wish.namespaces.length === 0) {
    throw new ConfigError("A key is for at least one namespace.");
  }
  return [...new Set(wish.namespaces.map(normaliseNamespace))].sort();
}
