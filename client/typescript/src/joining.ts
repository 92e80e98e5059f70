/**
 * A key that is made here, its request to be let in, and its profile once it was.
 *
 * - The private key stays here: a request holds nothing secret.
 * - The account that let the key in is compared with what its owner said. Whoever has a request, the
 *   relayer's operator among them, could let its key into an account of their own.
 *
 * Source: SPEC.md §4.2.
 */

import { toHex } from "./bytes.ts";
import type { Ending } from "./description.ts";
import { ConfigError, NotGranted } from "./errors.ts";
import { readGrant, type Role } from "./sealed/grants.ts";
import { makeFingerprint, writeJoinRequest } from "./sealed/joinRequest.ts";
import { accountBytes, accountIdOf, accountText, Identity } from "./sealed/keys.ts";
import { Ledger } from "./sealed/ledger.ts";
import { parseBytes, parseList, Session } from "./session.ts";
import { checkProfile, type Profile } from "./settings.ts";
import { MemoryTrustStore } from "./trust.ts";

const DAY_MS = 86_400_000;
const HOLDS_MS = 7 * DAY_MS;
const PATIENCE = { timeoutMs: 30_000, deadlineMs: 60_000, attemptsMax: 5, onRepeat: undefined };

/** What a new key asks for. */
export interface JoinOptions extends Ending {
  /** A key that is there already, in place of a new one. */
  readonly identity?: Identity;
  /** A name for the key. */
  readonly label?: string;
  /** Let in by this account alone. */
  readonly accountId?: string;
  /** Insist on this relayer. */
  readonly relayerKey?: string;
  /** How long the request holds, in milliseconds (7 days). */
  readonly holdsMs?: number;
  readonly allowInsecure?: boolean;
  readonly fetch?: typeof fetch;
}

/** A request that waits to be let in: keep all of it but `request`, which goes to an owner. */
export interface Joining {
  readonly request: string;
  /** What both sides compare. */
  readonly fingerprint: string;
  readonly url: string;
  readonly private_key: string;
  readonly relayer_key: string;
  readonly account_id: string | null;
  readonly allow_insecure: boolean;
}

/** What a key was let into: whether it is the right account is for a person to say. */
export interface Joined {
  readonly profile: Profile;
  readonly roles: readonly Role[];
  /** The namespaces that it holds; null for the whole account. */
  readonly namespaces: readonly string[] | null;
  /** The fingerprint of the account, which its owner can tell. */
  readonly accountFingerprint: string;
}

/** Makes a key and its request to be let into somebody's account. */
export async function requestToJoin(url: string, options: JoinOptions = {}): Promise<Joining> {
  const {
    identity = Identity.generate(),
    accountId = null,
    label = "",
    holdsMs = HOLDS_MS,
  } = options;
  const allowInsecure = options.allowInsecure ?? false;
  const session = newcomer(
    { url, allow_insecure: allowInsecure, relayer_key: options.relayerKey ?? null },
    identity,
    options.fetch,
  );
  const { relayer } = await session.statement(options.signal);
  const createdMs = Math.floor(Date.now() / 1000) * 1000;
  const request = writeJoinRequest(identity, {
    relayer,
    account: accountId === null ? null : accountBytes(accountId),
    createdMs,
    expiresMs: createdMs + holdsMs,
    label,
  });
  return {
    request,
    fingerprint: makeFingerprint(identity.publicKey),
    url,
    private_key: identity.seedHex(),
    relayer_key: toHex(relayer),
    account_id: accountId,
    allow_insecure: allowInsecure,
  };
}

/**
 * Returns the profile of a key that was let in, its grants verified to the account's founder.
 *
 * @throws {NotAuthenticated} no account let it in yet. {NotGranted} it holds nothing any more.
 * @throws {UntrustedGrant} the grants do not lead to a founder.
 * @throws {ConfigError} it was let into another account than the one it asked for.
 */
export async function finishJoining(
  joining: Omit<Joining, "request" | "fingerprint">,
  options: Ending & { readonly fetch?: typeof fetch } = {},
): Promise<Joined> {
  const identity = Identity.fromHex(joining.private_key);
  const session = newcomer(joining, identity, options.fetch);
  const { signal } = options;
  await session.statement(signal); // another relayer's word counts for nothing
  const answer = await session.call<"listGrants">({ method: "GET", path: "/v1/grants", signal });
  const objects = parseList(answer.grants, "grants").map((entry) => ({
    kind: entry.kind as string,
    object: parseBytes(entry.object, "grant"),
  }));
  const own = objects
    .filter((entry) => entry.kind === "grant")
    .map((entry) => readGrant(entry.object))
    .find((grant) => toHex(grant.recipient) === identity.publicKeyHex);
  if (own === undefined) throw new NotGranted("The relayer shows no grant to this key.");
  if (joining.account_id !== null && own.account !== joining.account_id) {
    throw new ConfigError("Another account let this key in than the one that it asked for.");
  }
  const account = accountBytes(own.account);
  const succession = (answer.succession ?? []).map((text) => parseBytes(text, "successor"));
  const ledger = Ledger.of(account, objects, succession);
  const keyring = ledger.keyring(identity, Date.now());
  if (keyring.roles.size === 0) throw new NotGranted("This key holds nothing any more.");
  const namespaces = keyring.isWholeAccount ? null : keyring.names;
  const { url, private_key, relayer_key, allow_insecure } = joining;
  return {
    profile: {
      url,
      account_id: own.account,
      private_key,
      relayer_key,
      allow_insecure,
      namespace: namespaces?.[0] ?? "default",
    },
    roles: [...keyring.roles],
    namespaces,
    accountFingerprint: makeFingerprint(account),
  };
}

/** Returns the session of a key that does not know yet which account it is in. */
function newcomer(
  given: Pick<Profile, "url" | "allow_insecure" | "relayer_key">,
  identity: Identity,
  fetcher: typeof fetch | undefined,
): Session {
  const account_id = accountText(accountIdOf(identity.publicKey)); // it founds none
  const profile = { ...given, account_id, private_key: "" };
  return new Session({
    settings: { ...checkProfile(profile, identity), accountId: "" },
    fetch: fetcher ?? ((input, init) => fetch(input, init)),
    patience: PATIENCE,
    trustStore: new MemoryTrustStore(),
    holdS: 0,
    onWarning: undefined,
  });
}
