/**
 * One client's dealings with one relayer: whom to trust, which keys to send, and how to ask.
 *
 * Not here: repetitions (`exchange.ts`), where it is kept what was verified (`seen.ts`), what the
 * routes mean (`operations/`).
 *
 * - A relayer's statement, grants and receipts count only once verified; nothing already seen is
 *   taken back.
 * - A sealed account's keys go out in the unlock header only, for the request's namespaces only. A
 *   relayer can talk this client into sealing more, never into sealing less.
 *
 * Source: SPEC.md §4, §5, §6.
 */

import { type Bytes, fromBase64, sameBytes, toBase64, toHex } from "./bytes.ts";
import type { AnswerOf, OperationName } from "./description.ts";
import {
  BadRequest,
  malformedAnswer,
  Misdirected,
  NotAllowed,
  NotGranted,
  ServerError,
  UntrustedRelayer,
} from "./errors.ts";
import {
  type Answer,
  ANSWER_BYTES_MAX,
  Exchange,
  LONG_ANSWER_BYTES_MAX,
  type Patience,
  type Sending,
} from "./exchange.ts";
import { blobId } from "./sealed/envelope.ts";
import { writeJson } from "./sealed/json.ts";
import { type Identity, publicKeyBytes } from "./sealed/keys.ts";
import { type Keyring, Ledger } from "./sealed/ledger.ts";
import { normaliseNamespace } from "./sealed/names.ts";
import {
  checkOfRequest,
  type Op,
  readReceipt,
  type Receipt,
  type RequestState,
} from "./sealed/receipts.ts";
import {
  blamingRelayer,
  isFresh,
  liveUnlockKeys,
  readSigner,
  readStatement,
  readSuccession,
  readSuccessor,
  type Statement,
} from "./sealed/statement.ts";
import { buildUnlock, REUSE_MS_MAX } from "./sealed/unlock.ts";
import { Seen } from "./seen.ts";
import type { Settings } from "./settings.ts";
import { signRequest } from "./signing.ts";
import type { TrustState, TrustStore } from "./trust.ts";

const GRANTS_AGE_MS_MAX = 600_000;
const HEADERS_MAX = 64;
const RENEWING = ["unlock_key_unknown", "unlock_rejected", "epoch.outdated"];

/** A parameter of a query; a list is a repeated one, and what is undefined is left out. */
export type QueryValue = string | number | boolean | Date | null | undefined | readonly string[];

/** One request of the API. */
export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, QueryValue>>;
  /** The namespaces whose keys it needs. */
  readonly unlock?: Iterable<string>;
  /** Puts the relayer's key in the body, or the query. */
  readonly namesRelayer?: boolean;
  /** False where a second one does harm. */
  readonly isRepeatable?: boolean;
  readonly isSigned?: boolean;
  /** More where an answer may be long. */
  readonly answerBytesMax?: number;
  readonly signal?: AbortSignal | undefined;
}

/** What a receipt of an answer has to be for. */
export interface ReceiptWanted {
  readonly op: Op | readonly Op[];
  readonly ids?: Iterable<string>;
  /** The object that it is for. */
  readonly signed?: Uint8Array;
  readonly asked?: RequestState;
}

/** What a session is made of. */
export interface SessionParts {
  readonly settings: Settings;
  readonly fetch: typeof fetch;
  readonly patience: Patience;
  readonly trustStore: TrustStore;
  /** How long the relayer may keep the keys for background work, 0 to 300. */
  readonly holdS: number;
  /** Is told what is wrong and costs no request, such as a store that cannot be written. */
  readonly onWarning: ((message: string) => void) | undefined;
}

/** Returns bytes that an answer holds in base64. */
export function parseBytes(text: unknown, what: string): Bytes {
  if (text === undefined || text === null) throw malformedAnswer(what);
  return blamingRelayer("The relayer", () => fromBase64(text, what));
}

/** Returns a list that an answer has to hold. */
export function parseList<T>(value: readonly T[] | undefined | null, what: string): readonly T[] {
  if (!Array.isArray(value)) throw malformedAnswer(what);
  return value as readonly T[];
}

/** Returns a text that an answer has to hold. */
export function parseText(value: unknown, what: string): string {
  if (typeof value !== "string") throw malformedAnswer(what);
  return value;
}

/** Returns a whole number that an answer has to hold. */
export function parseInteger(value: unknown, what: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw malformedAnswer(what);
  return value as number;
}

/** The state of one client about its relayer and account, and the way it asks. */
export class Session {
  readonly settings: Settings;
  readonly identity: Identity;
  readonly account: Uint8Array;
  readonly exchange: Exchange;
  readonly #parts: SessionParts;
  readonly #seen: Seen;
  #statement: Statement | null = null;
  #toldKeys: readonly Bytes[] = []; // the keys that led to today's, as the relayer says
  #ledger: Ledger | null = null;
  #keyring: Keyring | null = null;
  #loadedMs = 0;
  #isManaged = false;
  readonly #headers = new Map<string, { readonly madeMs: number; readonly header: string }>();

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.settings = parts.settings;
    this.identity = parts.settings.identity;
    this.account = parts.settings.account;
    this.exchange = new Exchange(parts.fetch, parts.patience);
    this.#seen = new Seen(parts.trustStore, parts.onWarning);
  }

  /** Returns what was verified so far. */
  trust(): Promise<TrustState> {
    return this.#seen.open();
  }

  /** Writes what was seen to its store; one that fails costs no request, and is told once. */
  save(): Promise<void> {
    return this.#seen.save();
  }

  // Asking

  /**
   * Returns what the relayer answers; its form is the relayer's word, and its receipts are not
   * verified yet.
   *
   * @throws {ServerError} it refused. {TransportError} it was not reached. {Invalid} it lied.
   */
  async call<Name extends OperationName>(call: Call): Promise<AnswerOf<Name>> {
    return (await this.#call(call)) as AnswerOf<Name>;
  }

  async #call(call: Call): Promise<Answer> {
    if (!call.namesRelayer) return this.#ask(call, null);
    const relayer = await this.relayerKey(call.signal);
    try {
      return await this.#ask(call, relayer);
    } catch (error) {
      if (!(error instanceof BadRequest) || error.code !== "relayer.other") throw error;
      // It refused without an effect. Perhaps it has a new key, named by the pinned one.
      this.#statement = null;
      const following = (await this.statement(call.signal)).relayer;
      if (sameBytes(following, relayer)) throw error;
      return this.#ask(call, following);
    }
  }

  async #ask(call: Call, relayer: Uint8Array | null): Promise<Answer> {
    const named = relayer === null ? {} : { relayer: toHex(relayer) };
    const body = call.body && writeJson({ ...call.body, ...named });
    const target = makeTarget(call.path, { ...call.query, ...(call.body ? {} : named) });
    if (call.unlock === undefined) return this.exchange.run(this.sending(call, target, body, {}));
    return this.#askUnlocked(call, target, body, new Set(call.unlock));
  }

  async #askUnlocked(
    call: Call,
    target: string,
    body: Bytes | undefined,
    names: ReadonlySet<string>,
  ): Promise<Answer> {
    for (let isFirst = true; ; isFirst = false) {
      const headers = await this.unlockHeaders(names, call.signal);
      const isUnlocked = "x-memrelay-unlock" in headers;
      try {
        return await this.exchange.run(this.sending(call, target, body, headers));
      } catch (error) {
        if (!(error instanceof Misdirected || error instanceof NotAllowed)) throw error;
        if (!isFirst || !(await this.#mayRecover(error, isUnlocked))) {
          throw explain(error, isUnlocked);
        }
      }
    }
  }

  /** Returns a request for one exchange, which is signed at each attempt. */
  sending(
    call: Call,
    target: string,
    body: Bytes | undefined,
    headers: Readonly<Record<string, string>>,
  ): Sending {
    const { method, isSigned = true } = call;
    return {
      method,
      url: this.settings.url + target,
      body: body ?? null,
      headers: () => ({
        ...headers,
        ...(body && { "content-type": "application/json" }),
        ...(isSigned && this.#sign(method, target, body ?? new Uint8Array(0))),
      }),
      isRepeatable: call.isRepeatable ?? true,
      answerBytesMax: call.answerBytesMax ?? ANSWER_BYTES_MAX,
      signal: call.signal,
    };
  }

  #sign(method: string, target: string, body: Uint8Array): Record<string, string> {
    const { accountId } = this.settings;
    const timestampS = Math.floor(Date.now() / 1000);
    return signRequest(this.identity, { timestampS, method, target, body, accountId });
  }

  /** Forgets what the relayer no longer accepts; returns whether another attempt may help. */
  async #mayRecover(error: ServerError, isUnlocked: boolean): Promise<boolean> {
    if (RENEWING.includes(error.code)) {
      this.forgetGrants();
      this.#statement = null;
      return true;
    }
    if (error.code === "unlock_required" && !isUnlocked && this.settings.custody === "auto") {
      await this.#rememberSealed();
      return true;
    }
    return false;
  }

  // Trust

  /** Returns the pinned relayer's public key; at first contact, the one that answers. */
  async relayerKey(signal?: AbortSignal): Promise<Bytes> {
    return (await this.findPin()) ?? (await this.statement(signal)).relayer;
  }

  /** Returns the relayer key that this client insists on: the pinned one, or its last successor. */
  async findPin(): Promise<Bytes | null> {
    const { relayer_key: known } = await this.trust();
    const pinned = this.settings.relayerKey ?? (known === null ? null : publicKeyBytes(known));
    if (pinned === null) return null;
    const keys = this.#keysSeen();
    return (keys.some((key) => sameBytes(key, pinned)) ? keys.at(-1)! : pinned) as Bytes;
  }

  /** The relayer's keys as far as they were seen, oldest first. */
  #keysSeen(): readonly Bytes[] {
    const objects = this.#seen.state.succession.map((text) => fromBase64(text, "successor"));
    return objects.length === 0 ? [] : readSuccession(objects, readSuccessor(objects.at(-1)!).next);
  }

  /**
   * Returns every key that the relayer has had, oldest first: receipts are signed by these.
   *
   * Whoever answers may put any key before the pinned one: what an earlier key signed counts only as
   * far as one of `heirs` vouches for it.
   */
  async relayers(signal?: AbortSignal): Promise<readonly Bytes[]> {
    const statement = await this.statement(signal);
    return this.#toldKeys.length > 0 ? this.#toldKeys : [statement.relayer];
  }

  /** Returns the pinned key and those that it led to, oldest first. */
  async heirs(signal?: AbortSignal): Promise<readonly Bytes[]> {
    return this.#heirsOf(await this.relayers(signal));
  }

  #heirsOf(keys: readonly Bytes[]): readonly Bytes[] {
    const pinned = this.settings.relayerKey
      ? toHex(this.settings.relayerKey)
      : (this.#seen.state.relayer_key ?? "");
    const seen = this.#keysSeen().map(toHex);
    const from = seen.indexOf(pinned);
    const known = new Set([pinned, ...(from < 0 ? [] : seen.slice(from))]);
    const first = keys.findIndex((key) => known.has(toHex(key)));
    return keys.slice(first < 0 ? keys.length - 1 : first);
  }

  /**
   * Returns the relayer's statement, at most 10 minutes old.
   *
   * @throws {UntrustedRelayer} it is another relayer's, stale or false.
   */
  async statement(signal?: AbortSignal): Promise<Statement> {
    const nowMs = Date.now();
    if (this.#statement !== null && isFresh(this.#statement, nowMs)) return this.#statement;
    await this.trust();
    const call: Call = { method: "GET", path: "/v1/relayer", isSigned: false, signal };
    const answer = await this.call<"getStatement">(call);
    const data = parseBytes(answer.statement, "statement");
    const succession = parseSuccession(answer.succession);
    const [pinned, named] = [await this.findPin(), readSigner(data)];
    const keys = readSuccession(succession, named);
    const isLedTo = pinned !== null && keys.some((key) => sameBytes(key, pinned));
    const statement = readStatement(data, isLedTo ? named : pinned, Date.now());
    this.#toldKeys = keys;
    this.#headers.clear();
    this.#statement = statement;
    if (pinned === null) await this.#seen.note({ relayer_key: toHex(statement.relayer) });
    // Anybody can name the pinned key as their heir: what stands before it is not kept.
    const heirs = succession.slice(keys.length - this.#heirsOf(keys).length);
    if (heirs.length > 0) await this.#seen.note({ succession: heirs.map(toBase64) });
    return statement;
  }

  /** Returns the account's verified grants, at most 10 minutes old. */
  async ledger(signal?: AbortSignal): Promise<Ledger> {
    return (await this.#loadGrants(signal)).ledger;
  }

  /**
   * Returns the keys of this identity.
   *
   * @throws {UntrustedGrant} the chain does not lead to the founder.
   * @throws {UntrustedRelayer} `rollback`, when grants seen before are withheld.
   */
  async keyring(signal?: AbortSignal): Promise<Keyring> {
    return (await this.#loadGrants(signal)).keyring;
  }

  async #loadGrants(signal?: AbortSignal): Promise<{ ledger: Ledger; keyring: Keyring }> {
    const isLoaded = Date.now() - this.#loadedMs <= GRANTS_AGE_MS_MAX;
    if (this.#ledger && this.#keyring && isLoaded) {
      return { ledger: this.#ledger, keyring: this.#keyring };
    }
    await this.trust();
    await this.#seen.refresh(); // another client may have seen more, such as a new epoch
    const answer = await this.call<"listGrants">({
      method: "GET",
      path: "/v1/grants",
      answerBytesMax: LONG_ANSWER_BYTES_MAX,
      signal,
    });
    const objects = parseList(answer.grants, "grants").map((entry) => ({
      kind: parseText(entry.kind, "grant"),
      object: parseBytes(entry.object, "grant"),
    }));
    const ledger = Ledger.of(this.account, objects, parseSuccession(answer.succession));
    const keyring = ledger.keyring(this.identity, Date.now());
    this.#checkGrants(ledger, keyring, parseInteger(answer.grant_serial, "grant_serial"));
    await this.#seen.note({ grant_serial: ledger.serial, epoch: keyring.epoch });
    this.#ledger = ledger;
    this.#keyring = keyring;
    this.#loadedMs = Date.now();
    this.#headers.clear();
    return { ledger, keyring };
  }

  #checkGrants(ledger: Ledger, keyring: Keyring, serial: number): void {
    const known = this.#seen.state;
    const isWithheld =
      (keyring.roles.has("owner") && !(ledger.isComplete && ledger.serial === serial)) ||
      ledger.hidesFrom(this.identity.publicKey) ||
      serial < Math.max(known.grant_serial, known.receipt_serial, ledger.serial);
    if (isWithheld) {
      throw new UntrustedRelayer("rollback", "The relayer withholds grants or revocations.");
    }
    if (keyring.epoch > 0 && keyring.epoch < known.epoch) {
      throw new UntrustedRelayer("rollback", "The relayer withholds the newest epoch.");
    }
  }

  /** Loads the grants again before the next use. */
  forgetGrants(): void {
    this.#ledger = this.#keyring = null;
    this.#headers.clear();
  }

  /** Returns whether requests carry the unlock header. */
  async isSealed(signal?: AbortSignal): Promise<boolean> {
    const { custody, accountId } = this.settings;
    if (custody !== "auto") return custody === "sealed";
    if ((await this.trust()).sealed) return true;
    if (this.#isManaged) return false;
    const path = `/v1/accounts/${accountId}`;
    const account = await this.call<"getAccount">({ method: "GET", path, signal });
    if (account.custody !== "managed") {
      await this.#rememberSealed();
      return true;
    }
    await this.#checkManaged(signal);
    this.#isManaged = true;
    return false;
  }

  async #checkManaged(signal?: AbortSignal): Promise<void> {
    const { ledger, keyring } = await this.#loadGrants(signal);
    if (!keyring.roles.has("owner")) return; // only an owner sees all grants
    if (ledger.isManagedBy(await this.relayerKey(signal), Date.now())) return;
    const successor = (await this.statement(signal)).relayer; // the pinned key may have one
    if (!ledger.isManagedBy(successor, Date.now())) {
      throw new UntrustedRelayer("custody", "The relayer claims custody that nobody gave it.");
    }
  }

  async #rememberSealed(): Promise<void> {
    this.#isManaged = false;
    await this.#seen.note({ sealed: true });
  }

  // Unlocking

  /** Returns the header that lends the keys of these namespaces; none for a managed account. */
  async unlockHeaders(
    given: Iterable<string>,
    signal?: AbortSignal,
  ): Promise<Record<string, string>> {
    if (!(await this.isSealed(signal))) return {};
    const names = [...new Set([...given].map(normaliseNamespace))].sort();
    const statement = await this.statement(signal);
    await this.keyring(signal); // one loaded anew drops the headers made of the one before
    const place = JSON.stringify(names);
    const known = this.#headers.get(place);
    if (known && Math.abs(Date.now() - known.madeMs) <= REUSE_MS_MAX) {
      return { "x-memrelay-unlock": known.header };
    }
    const keyring = await this.#keyringFor(names, signal);
    const header = this.#buildUnlock(statement, keyring, names);
    if (this.#headers.size >= HEADERS_MAX) this.#headers.clear();
    this.#headers.set(place, { madeMs: Date.now(), header });
    return { "x-memrelay-unlock": header };
  }

  async #keyringFor(names: readonly string[], signal?: AbortSignal): Promise<Keyring> {
    const keyring = await this.keyring(signal);
    try {
      for (const name of names) keyring.namespaceKeys(name);
      return keyring;
    } catch (error) {
      if (!(error instanceof NotGranted)) throw error;
      // A grant may have been added since the last look.
      this.forgetGrants();
      return this.keyring(signal);
    }
  }

  #buildUnlock(statement: Statement, keyring: Keyring, names: readonly string[]): string {
    const nowMs = Date.now();
    const unlockKeys = liveUnlockKeys(statement, nowMs);
    if (unlockKeys.length === 0) {
      throw new UntrustedRelayer("unlock_key", "The relayer lists no live unlock key.");
    }
    const unlock = {
      relayer: statement.relayer,
      account: this.account,
      issuedMs: nowMs,
      holdS: this.#parts.holdS,
      keys: names.flatMap((name) => keyring.namespaceKeys(name)),
    };
    return buildUnlock(this.identity, unlock, unlockKeys);
  }

  // Remembering what was seen

  /** Returns what is known when a request is about to be sent, for its receipts. */
  async noteRequest(namespaces: readonly string[] | null = null): Promise<RequestState> {
    return { atMs: Date.now(), epoch: (await this.trust()).epoch, namespaces };
  }

  /**
   * Returns a receipt that came with an answer, verified, and keeps it if it is the newest.
   *
   * @throws {UntrustedRelayer} it is false, came with another answer, or is not for this operation,
   *   these ids, this object and this request.
   */
  async noteReceipt(text: unknown, wanted: ReceiptWanted): Promise<Receipt> {
    const relayer = await this.relayerKey();
    const data = parseBytes(text, "receipt");
    const receipt = readReceipt(data, relayer, this.account);
    const ops: readonly Op[] = typeof wanted.op === "string" ? [wanted.op] : wanted.op;
    if (!sameBytes(receipt.actor, this.identity.publicKey) || !ops.includes(receipt.op)) {
      throw new UntrustedRelayer("receipt", "A receipt is for something else.");
    }
    const recorded = new Set(receipt.items.map((item) => item.id));
    for (const id of wanted.ids ?? []) {
      if (!recorded.has(id)) {
        throw new UntrustedRelayer("receipt", "A receipt leaves something out.");
      }
    }
    // All revocations have one id: only its bytes tell which of them a receipt is for.
    const named = wanted.signed && blobId(wanted.signed);
    if (named !== undefined && !receipt.items.some((item) => item.blobId === named)) {
      throw new UntrustedRelayer("receipt", "A receipt is for another grant or revocation.");
    }
    if (wanted.asked !== undefined) checkOfRequest(receipt, wanted.asked);
    if (!(await this.#seen.take(receipt))) {
      this.#parts.onWarning?.("The relayer was set back, or signs two histories.");
    }
    await this.#seen.note({
      receipt_seq: receipt.seq,
      receipt_head: toHex(receipt.digest),
      receipt_serial: receipt.serial,
    });
    return receipt;
  }

  /** Keeps how far the chain of receipts was followed. */
  async noteChecked(seq: number, head: Uint8Array): Promise<void> {
    await this.#seen.note({ checked_seq: seq, checked_head: toHex(head) });
  }
}

/** Returns a path with its query; a list is a repeated parameter. */
export function makeTarget(path: string, query: Readonly<Record<string, QueryValue>>): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [value]) {
      pairs.append(name, one instanceof Date ? one.toISOString() : String(one));
    }
  }
  return pairs.size > 0 ? `${path}?${pairs}` : path;
}

function parseSuccession(value: readonly string[] | undefined): Bytes[] {
  return (value ?? []).map((text) => parseBytes(text, "successor"));
}

function explain(error: ServerError, isUnlocked: boolean): ServerError {
  if (error.code !== "unlock_required") return error;
  const hint = isUnlocked
    ? "Its keys were sent: a proxy may drop x-memrelay-unlock, or it is another namespace."
    : "The account is sealed, but this client is set to managed: set custody to sealed.";
  return new NotAllowed(`${error.reason} ${hint}`, error);
}
