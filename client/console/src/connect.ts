// Turns keys into an open account at the relayer that this page came from.
//
// - The page asks its own address alone: the relayer's, or that of `memrelay console` before it.
// - What was verified of an account's history is kept beside kept keys, so that a relayer that goes
//   back behind it is noticed later. It holds no key and no text.

import {
  accountBytes,
  Identity,
  MemoryTrustStore,
  newProfile,
  NotGranted,
  readTrustState,
  recoverIdentity,
  requestToJoin,
  toHex,
  type Profile as ClientProfile,
  type TrustState,
  type TrustStore,
} from "../../typescript/src/index.ts";
import { Access, KeyClient } from "./access.ts";
import type { Profile } from "./profile.ts";
import { listEntries } from "./vault.ts";

const PLACE = "memrelay.console.seen.";

/** Returns the address of the relayer: the page's own, without its last part. */
export function relayerUrl(): string {
  return location.origin + location.pathname.replace(/\/console\/?$/, "");
}

/** Opens the account of a profile: its grants and the relayer's statement are verified first. */
export async function open(profile: Profile): Promise<Access> {
  const client = new KeyClient(clientProfile(profile), { trustStore: trustStore(profile.accountId) });
  const roles = await client.roles();
  if (roles.size === 0) throw new NotGranted("This key holds nothing in that account.");
  const { relayer } = await client.statement();
  return new Access(client, toHex(relayer), roles, profile.namespace);
}

/** Founds a sealed account with a new key of this browser. */
export async function foundAccount(label: string, token: string | null): Promise<Profile> {
  const made = newProfile(relayerUrl(), Identity.generate());
  const founder = new KeyClient(made);
  const founded = await founder.createAccount({ label, ...(token === null ? {} : { token }) });
  return {
    accountId: made.account_id,
    privateKey: made.private_key,
    relayerKey: founded.relayer_key,
    namespace: "default",
  };
}

/** Makes a key of this browser and its request to be let into an account. */
export async function makeJoinRequest(
  accountId: string,
  label: string,
): Promise<{ request: string; fingerprint: string; profile: Profile }> {
  const joining = await requestToJoin(relayerUrl(), { accountId, label });
  return {
    request: joining.request,
    fingerprint: joining.fingerprint,
    profile: {
      accountId,
      privateKey: joining.private_key,
      relayerKey: joining.relayer_key,
      namespace: "default",
    },
  };
}

/** Returns the profile of a recovery key, each of whose lines was checked. */
export function profileOfRecovery(accountId: string, typed: string): Profile {
  const identity = recoverIdentity(typed, accountBytes(accountId));
  return { accountId, privateKey: identity.seedHex(), relayerKey: null, namespace: "default" };
}

function clientProfile(profile: Profile): ClientProfile {
  return {
    url: relayerUrl(),
    account_id: profile.accountId,
    private_key: profile.privateKey,
    relayer_key: profile.relayerKey,
    namespace: profile.namespace,
  };
}

/** Keeps what was verified where this account's keys are kept, else in memory. */
function trustStore(accountId: string): TrustStore {
  if (!listEntries().some((entry) => entry.account === accountId)) return new MemoryTrustStore();
  const place = PLACE + accountId;
  return {
    read: () => {
      const found = localStorage.getItem(place);
      return found === null ? null : readTrustState(JSON.parse(found));
    },
    write: (state: TrustState) => localStorage.setItem(place, JSON.stringify(state)),
  };
}
