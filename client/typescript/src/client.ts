/**
 * The client: everything that a key can do at a relayer.
 *
 * Source: SPEC.md.
 */

import { ConfigError } from "./errors.ts";
import type { MemrelayError } from "./errors.ts";
import { Following } from "./operations/following.ts";
import { accountIdOf, accountText, Identity } from "./sealed/keys.ts";
import { Session } from "./session.ts";
import { checkProfile, type Profile } from "./settings.ts";
import { MemoryTrustStore, type TrustStore } from "./trust.ts";

const TIMEOUT_MS = 30_000;
const DEADLINE_MS = 60_000;
const ATTEMPTS_MAX = 5;
const HOLD_S = 300;

/** What a client may be given beside its profile. */
export interface ClientOptions {
  /** The identity that signs, in place of the profile's private key. */
  readonly identity?: Identity;
  /** Where it is kept what was verified so far; without it, in memory. */
  readonly trustStore?: TrustStore;
  /** In place of the platform's `fetch`. */
  readonly fetch?: typeof fetch;
  /** How long one attempt may take, in milliseconds (30,000). */
  readonly timeoutMs?: number;
  /** How long all attempts of a request may take, in milliseconds (60,000). */
  readonly deadlineMs?: number;
  readonly attemptsMax?: number;
  /** How long the relayer may keep the keys for background work, 0 to 300 seconds (300). */
  readonly holdS?: number;
  /** Is told the error before each pause that another attempt follows. */
  readonly onRepeat?: (error: MemrelayError) => void;
  /** Is told what is wrong and costs no request; without it, `console.warn` is. */
  readonly onWarning?: (message: string) => void;
}

/** One key's client of one relayer. */
export class Client extends Following {
  constructor(profile: Profile, options: ClientOptions = {}) {
    const { holdS = HOLD_S } = options;
    if (!Number.isInteger(holdS) || holdS < 0 || holdS > HOLD_S) {
      throw new ConfigError("holdS is 0 to 300 seconds.");
    }
    super(
      new Session({
        settings: checkProfile(profile, options.identity),
        fetch: options.fetch ?? ((input, init) => fetch(input, init)),
        patience: {
          timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
          deadlineMs: options.deadlineMs ?? DEADLINE_MS,
          attemptsMax: options.attemptsMax ?? ATTEMPTS_MAX,
          onRepeat: options.onRepeat,
        },
        trustStore: options.trustStore ?? new MemoryTrustStore(),
        holdS,
        onWarning: options.onWarning ?? ((message) => console.warn(`memrelay: ${message}`)),
      }),
    );
  }

  /** The public key that signs, in hex. */
  get publicKey(): string {
    return this.session.identity.publicKeyHex;
  }

  /** The account's id. */
  get accountId(): string {
    return this.session.settings.accountId;
  }

  /** Writes what was verified since the last time to the trust store. */
  save(): Promise<void> {
    return this.session.save();
  }
}

/**
 * Returns the profile of a new account at a relayer, which nobody has founded yet.
 *
 * `new Client(profile).createAccount()` does. The private key is nowhere else: keep the profile.
 */
export function newProfile(url: string, identity: Identity = Identity.generate()): Profile {
  return {
    url,
    account_id: accountText(accountIdOf(identity.publicKey)),
    private_key: identity.seedHex(),
  };
}
