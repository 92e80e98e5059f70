/**
 * Begins a new epoch of an account, and follows its memories there: an owner's operations.
 *
 * Not here: the objects that a rotation sends (`../sealed/reissue.ts`), single grants
 * (`keyholders.ts`).
 *
 * - The new root is made here and leaves only inside signed grants. Once the relayer has those, the
 *   owner's own one among them keeps it; before, nothing needs it.
 * - A relayer seals memories anew with keys that are lent for minutes; it never gets a root.
 *
 * Source: SPEC.md §16.
 */

import { sameBytes, toBase64, toHex, utf8 } from "../bytes.ts";
import type { Ending, Schemas } from "../description.ts";
import { ConfigError, Conflict, NotGranted, UntrustedRelayer } from "../errors.ts";
import { sleep } from "../exchange.ts";
import type { JoinRequest } from "../sealed/joinRequest.ts";
import { publicKeyBytes, Root } from "../sealed/keys.ts";
import type { Keyring, Ledger } from "../sealed/ledger.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { type Reissue, reissue, sharesOf } from "../sealed/reissue.ts";
import { blamingRelayer } from "../sealed/statement.ts";
import { type Call, parseList } from "../session.ts";
import { Keyholders } from "./keyholders.ts";

const EPOCHS_MAX = 8; // alive at once: the keys of a namespace have to fit into one unlock header
const PATH = "/v1/rotations";
const ATTEMPTS_MAX = 3;
const LENT_BYTES_MAX = 3_000; // of keys in one unlock header, before it is boxed
const KEY_BYTES = 90; // of one in the header's JSON, beside its namespace
const PAUSE_MS = 250;
const PAUSE_MS_MAX = 2_000;
const STALLED_MS = 120_000; // without any progress: what is left cannot be opened for now

/** What is sealed anew: what revoked keys could read, everything, nothing, or these namespaces. */
export type ResealChoice = "revoked" | "all" | "none" | readonly string[];

/** Which keys are withdrawn with a rotation, and what is sealed anew (`revoked`). */
export interface RotateOptions extends Ending {
  /** Public keys, in hex. */
  readonly revoke?: readonly string[];
  readonly reseal?: ResealChoice;
}

/** A new epoch, with the receipts of its grants; none where an answer to them was lost. */
export interface Rotated {
  readonly epoch: number;
  readonly serial: number;
  readonly revoked: readonly string[];
  readonly receipts: readonly string[];
}

/** How far memories are under the newest epoch. */
export type RotationProgress = Schemas["ProgressAnswer"];

/** Whom to tell how far it is. */
export interface SealingOptions extends Ending {
  readonly onProgress?: (progress: RotationProgress) => void;
}

/** Rotation, and all operations on memories and keys. */
export class Rotating extends Keyholders {
  /**
   * Begins a new epoch, without the keys that are revoked with it.
   *
   * When this resolves, all that is new is sealed under the new epoch; `finishRotation` follows.
   *
   * @throws {NotGranted} this is no owner's key.
   * @throws {ConfigError} too many epochs are alive; one has to be left behind first.
   */
  async rotate(options: RotateOptions = {}): Promise<Rotated> {
    const { revoke = [], reseal = "revoked", signal } = options;
    const withdrawn = [...new Set(revoke)].map(publicKeyBytes);
    const roots = (keyring: Keyring): readonly Root[] => {
      const alive = keyring.roots();
      if (alive.length >= EPOCHS_MAX) {
        throw new ConfigError("Too many epochs are alive; seal all anew and retire them first.");
      }
      return [...alive, Root.generate(keyring.epoch + 1)];
    };
    return this.#rotate(roots, withdrawn, reseal, signal);
  }

  /**
   * Lets the key that made a request do what another one may, and begins a new epoch without that.
   *
   * What it may do is read from the verified grants, not from what a relayer lists.
   *
   * @throws {ConfigError} the key holds nothing any more.
   * @throws {Invalid} the request is for another relayer or account, or of another time.
   */
  async replaceKey(
    publicKey: string,
    request: JoinRequest,
    options: Omit<RotateOptions, "revoke"> & { readonly label?: string } = {},
  ): Promise<Rotated> {
    const { label, signal } = options;
    const replaced = publicKeyBytes(publicKey);
    if (sameBytes(replaced, request.recipient)) {
      throw new ConfigError("The request is of the key that is to be replaced.");
    }
    const ledger = await this.grants({ signal });
    const { relayer } = await this.session.statement(signal);
    const shares = [...sharesOf(ledger.listGrantsTo(replaced, Date.now()), relayer)];
    if (shares.length === 0) throw new ConfigError("The key holds nothing any more.");
    for (const { role, expiresMs, names } of shares) {
      if (role === "custodian") throw new ConfigError("A relayer's own key is not replaced.");
      const namespaces = names && [...names];
      const ending = expiresMs === null ? {} : { expires: new Date(expiresMs) };
      const named = label === undefined ? {} : { label };
      await this.admit(request, { role, namespaces, signal, ...ending, ...named });
    }
    return this.rotate({ ...options, revoke: [publicKey] });
  }

  /** Has more sealed anew under the newest epoch, without beginning another. */
  async reseal(reseal: ResealChoice = "all", options: Ending = {}): Promise<void> {
    await this.session.call<"rotateKeys">(callOf({ reseal }, options.signal));
  }

  /**
   * Lets everybody's grants go on without the older epochs.
   *
   * @throws {Conflict} `epoch.in_use`, something is still sealed under one.
   */
  retireEpochs(options: Ending = {}): Promise<Rotated> {
    return this.#rotate((keyring) => keyring.roots().slice(-1), [], "none", options.signal);
  }

  /** Returns the epochs whose keys this client still uses, oldest first. */
  async liveEpochs(options: Ending = {}): Promise<readonly number[]> {
    return (await this.session.keyring(options.signal)).roots().map((root) => root.epoch);
  }

  /**
   * Returns how far memories are under the newest epoch.
   *
   * With `lend`, the relayer gets keys to go on with, of as many namespaces as one request carries,
   * and keeps them for minutes.
   */
  async rotation(options: Ending & { readonly lend?: boolean } = {}): Promise<RotationProgress> {
    const { lend = false, signal } = options;
    const call: Call = { method: "GET", path: PATH, signal };
    const progress = await this.session.call<"getRotation">(call);
    if (!lend || !progress.remaining || !(await this.session.isSealed(signal))) return progress;
    const epochs = (await this.session.keyring(signal)).roots().length;
    const unlock = listLendable(parseList(progress.namespaces, "namespaces"), epochs);
    return this.session.call<"getRotation">({ ...call, unlock });
  }

  /**
   * Keeps the relayer in keys until nothing is left to seal anew; then retires older epochs.
   *
   * `retired` is false where something stays under them: what was not chosen, or cannot be opened
   * for now. It may be interrupted anywhere, and goes on when it is called again.
   */
  async finishRotation(
    options: SealingOptions = {},
  ): Promise<RotationProgress & { readonly retired: boolean }> {
    const { signal, onProgress } = options;
    let progress = await this.rotation({ signal });
    let [left, movedMs, pauseMs] = [-1, 0, PAUSE_MS];
    for (; progress.remaining > 0; progress = await this.rotation({ lend: true, signal })) {
      onProgress?.(progress);
      if (progress.remaining !== left) {
        left = progress.remaining;
        movedMs = performance.now();
      }
      const isStalled = performance.now() - movedMs > STALLED_MS;
      if (isStalled || progress.blocked.length === left) break;
      await sleep(pauseMs, signal);
      pauseMs = Math.min(PAUSE_MS_MAX, 1.5 * pauseMs);
    }
    onProgress?.(progress);
    return { ...progress, retired: await this.#retire(progress, signal) };
  }

  async #retire(progress: RotationProgress, signal: AbortSignal | undefined): Promise<boolean> {
    if (progress.older || (await this.liveEpochs({ signal })).length < 2) return false;
    try {
      await this.retireEpochs({ signal });
      return true;
    } catch (error) {
      // What is not restored yet needs them.
      const isWaiting = error instanceof Conflict && error.code === "epoch.in_use";
      if (isWaiting && progress.unrestored) return false;
      throw error;
    }
  }

  /** Sends a rotation; again when another grant came in between, not when it was accepted. */
  async #rotate(
    roots: (keyring: Keyring) => readonly Root[],
    withdrawn: readonly Uint8Array[],
    reseal: ResealChoice,
    signal: AbortSignal | undefined,
  ): Promise<Rotated> {
    const { session } = this;
    let sent: Reissue | null = null;
    for (let attempt = 1; ; attempt++) {
      session.forgetGrants();
      const keyring = await session.keyring(signal);
      const ledger = await session.ledger(signal);
      if (sent !== null && this.#isAccepted(ledger, sent)) return makeRotated(sent, withdrawn, []);
      if (!keyring.roles.has("owner")) {
        throw new NotGranted("Only an owner's key rotates an account.");
      }
      const nowMs = Date.now();
      if (withdrawn.some((key) => ledger.listGrantsTo(key, nowMs).length === 0)) {
        throw new ConfigError("A key that is to be revoked holds nothing any more.");
      }
      sent = reissue(ledger, session.identity, {
        account: session.account,
        roots: roots(keyring),
        withdrawn,
        relayer: (await session.statement(signal)).relayer,
        nowMs,
      });
      try {
        return makeRotated(sent, withdrawn, await this.#send(sent, reseal, signal));
      } catch (error) {
        const isTaken = error instanceof Conflict && error.code === "grant.serial";
        if (!isTaken || attempt === ATTEMPTS_MAX) throw error;
      }
    }
  }

  #isAccepted(ledger: Ledger, sent: Reissue): boolean {
    const held = ledger.listGrantsTo(this.session.identity.publicKey, Date.now());
    return held.some((grant) => grant.grant === sent.own);
  }

  async #send(
    sent: Reissue,
    reseal: ResealChoice,
    signal: AbortSignal | undefined,
  ): Promise<readonly string[]> {
    const revocations = sent.revocations.map(toBase64);
    const body = { revocations, grants: sent.grants.map(toBase64), reseal };
    const answer = await this.session.call<"rotateKeys">(callOf(body, signal));
    const receipts = parseList(answer.receipts, "receipts");
    const objects = [...sent.revocations, ...sent.grants];
    if (receipts.length !== objects.length) {
      throw new UntrustedRelayer("receipt", "A rotation came without all of its receipts.");
    }
    for (const [at, signed] of objects.entries()) {
      const op = at < revocations.length ? "revoke" : "grant";
      await this.session.noteReceipt(receipts[at], { op, signed });
    }
    this.session.forgetGrants();
    await this.session.keyring(signal); // which keeps the new epoch as seen
    return receipts;
  }
}

function callOf(body: Readonly<Record<string, unknown>>, signal: AbortSignal | undefined): Call {
  // Sent twice, it is refused the second time, for its serials.
  return { method: "POST", path: PATH, body, namesRelayer: true, signal };
}

function makeRotated(
  sent: Reissue,
  withdrawn: readonly Uint8Array[],
  receipts: readonly string[],
): Rotated {
  const { epoch, serial } = sent;
  return { epoch, serial, revoked: withdrawn.map(toHex), receipts };
}

/**
 * Returns as many names of namespaces with work left as fit into one header, one at least.
 *
 * Those that wait for keys come first.
 */
function listLendable(namespaces: readonly Schemas["NamespaceReseal"][], epochs: number): string[] {
  const names: string[] = [];
  let room = LENT_BYTES_MAX;
  const waiting = (entry: Schemas["NamespaceReseal"]): number => (entry.waiting_for_keys ? 0 : 1);
  for (const entry of [...namespaces].sort((left, right) => waiting(left) - waiting(right))) {
    room -= epochs * (KEY_BYTES + utf8(JSON.stringify(entry.name)).length);
    if (entry.remaining > 0 && (room >= 0 || names.length === 0)) {
      names.push(blamingRelayer("The relayer", () => normaliseNamespace(entry.name)));
    }
  }
  return names;
}
