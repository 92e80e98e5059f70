/**
 * Reads memories that fit a query, sizes, keys and receipts.
 *
 * Not here: trust and unlocking (`../session.ts`), lists (`listing.ts`), what changes memories
 * (`writing.ts`) and keys (`keyholders.ts`).
 *
 * Source: SPEC.md §11, §12, §15.
 */

import { fromHex, sameBytes, toHex } from "../bytes.ts";
import type { AnswerOf, Ending, Given, OperationName, Schemas } from "../description.ts";
import { ConfigError, UntrustedRelayer } from "../errors.ts";
import { LONG_ANSWER_BYTES_MAX, makeBreak, memoriesBytesMax } from "../exchange.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import {
  type Checkpoint,
  History,
  NO_HEAD,
  readCheckpoint,
  type Receipt,
} from "../sealed/receipts.ts";
import type { Statement } from "../sealed/statement.ts";
import { type Call, parseBytes, parseInteger, parseList, type Session } from "../session.ts";
import { checkAliases } from "../settings.ts";

const RECALL_LIMIT = 10;
const ASK_LIMIT = 5;
const RECEIPTS_PAGE = 200;
/** What a recall drops unless it is told otherwise: results that have nothing to do with a query. */
export const MIN_RELEVANCE = 0.3;

/** The controls of a recall (SPEC.md §12). */
export type RecallOptions = Given<Omit<Schemas["RecallBody"], "query">> & Ending;

/** What narrows the memories that a question is answered from. */
export type AskOptions = Given<Omit<Schemas["AskBody"], "question">> & Ending;

/** What is counted: all that the key may read, unless `namespaces` narrows it. */
export type CountsOptions = Given<Omit<Schemas["CountsBody"], "bounds">> & Ending;

/** A namespace, where another one than the client's own is meant. */
export interface InNamespace extends Ending {
  readonly namespace?: string | undefined;
}

/** How many receipts were followed, of how many. */
export type Followed = (followed: number, total: number) => void;

/** The operations that change nothing, for one session. */
export class Reading {
  /** How the client asks; for the parts of this package. */
  readonly session: Session;

  constructor(session: Session) {
    this.session = session;
  }

  /** Returns the memories that fit a query, best first. */
  async recall(query: string, options: RecallOptions = {}): Promise<Schemas["RecallAnswer"]> {
    const { signal, namespace, namespaces, aliases, ...controls } = options;
    const known = { ...this.session.settings.aliases, ...aliases };
    checkAliases(known);
    const body = {
      query,
      min_relevance: MIN_RELEVANCE,
      ...controls,
      ...(Object.keys(known).length > 0 && { aliases: known }),
    };
    const limit = controls.limit ?? RECALL_LIMIT;
    return this.post<"recall">("/v1/recall", body, {
      namespace,
      namespaces,
      signal,
      answerBytesMax: memoriesBytesMax(limit),
    });
  }

  /** Answers a question from memories; what may be among them is narrowed as for `recall`. */
  async ask(question: string, options: AskOptions = {}): Promise<Schemas["AskAnswer"]> {
    const { signal, namespace, namespaces, ...narrowing } = options;
    // Further looks find as much again.
    const limit = (narrowing.limit ?? ASK_LIMIT) * (narrowing.deep ? 2 : 1);
    return this.post<"ask">(
      "/v1/ask",
      { question, ...narrowing },
      {
        namespace,
        namespaces,
        signal,
        answerBytesMax: memoriesBytesMax(limit),
      },
    );
  }

  /** Returns how far up to 100 memories got. */
  async status(
    ids: readonly string[],
    options: Ending = {},
  ): Promise<readonly Schemas["MemoryStatus"][]> {
    const call: Call = { method: "POST", path: "/v1/memories/status", body: { ids }, ...options };
    return parseList((await this.session.call<"getMemoryStatus">(call)).results, "results");
  }

  /** Returns the size of a namespace. */
  stats(options: InNamespace = {}): Promise<Schemas["StatsAnswer"]> {
    const { signal } = options;
    const query = { namespace: this.namespaceOf(options.namespace) };
    return this.session.call<"getStats">({ method: "GET", path: "/v1/stats", query, signal });
  }

  /**
   * Counts the newest memories by when they were stored, by who wrote them, and by kind.
   *
   * `periods` of the answer has those from each of `bounds` to the next, the last without an end.
   */
  counts(
    bounds: readonly (string | Date)[],
    options: CountsOptions = {},
  ): Promise<Schemas["CountsAnswer"]> {
    const { signal, ...narrowing } = options;
    const body = { bounds, ...narrowing };
    return this.session.call<"getCounts">({ method: "POST", path: "/v1/counts", body, signal });
  }

  /** Returns what the account uses of what it may use. */
  usage(options: Ending = {}): Promise<Schemas["UsageAnswer"]> {
    return this.session.call<"getUsage">({ method: "GET", path: "/v1/usage", ...options });
  }

  /** Returns the namespaces that this key may see. */
  async namespaces(options: Ending = {}): Promise<readonly Schemas["NamespaceAnswer"][]> {
    const call: Call = { method: "GET", path: "/v1/namespaces", ...options };
    return parseList((await this.session.call<"listNamespaces">(call)).namespaces, "namespaces");
  }

  /** Returns the namespaces whose keys this client holds; null means the whole account. */
  async granted(options: Ending = {}): Promise<readonly string[] | null> {
    const keyring = await this.session.keyring(options.signal);
    return keyring.isWholeAccount ? null : keyring.names;
  }

  /** Returns the keys of the account. */
  async keys(options: Ending = {}): Promise<readonly Schemas["KeyEntry"][]> {
    const answerBytesMax = LONG_ANSWER_BYTES_MAX;
    const call: Call = { method: "GET", path: "/v1/keys", answerBytesMax, ...options };
    return parseList((await this.session.call<"listKeys">(call)).keys, "keys");
  }

  /** Returns the account as the relayer describes it. */
  account(options: Ending = {}): Promise<Schemas["AccountAnswer"]> {
    const path = `/v1/accounts/${this.session.settings.accountId}`;
    return this.session.call<"getAccount">({ method: "GET", path, ...options });
  }

  /** Returns what the account has chosen. */
  async accountSettings(options: Ending = {}): Promise<Schemas["AccountSettings"]> {
    const call: Call = { method: "GET", path: "/v1/settings", ...options };
    return (await this.session.call<"getSettings">(call)).settings;
  }

  /** Returns the relayer's own statement, verified under the pinned key. */
  statement(options: Ending = {}): Promise<Statement> {
    return this.session.statement(options.signal);
  }

  /** Returns the relayer's `/health`, unsigned. */
  health(options: Ending = {}): Promise<Schemas["HealthAnswer"]> {
    const call: Call = { method: "GET", path: "/health", isSigned: false, ...options };
    return this.session.call<"getHealth">(call);
  }

  /**
   * Follows the account's history from where it was followed before; returns what is new.
   *
   * It ends where the history ended when it began; what is written meanwhile is for the next time.
   *
   * @throws {UntrustedRelayer} the chain breaks, or lacks a receipt that this client was given.
   */
  async receipts(
    options: Ending & { readonly onProgress?: Followed } = {},
  ): Promise<readonly Receipt[]> {
    const { signal, onProgress } = options;
    const rest = makeBreak(signal);
    const seen = await this.session.trust();
    const known = new Map([[seen.receipt_seq, seen.receipt_head]]);
    const relayers = await this.session.relayers(signal);
    const heirs = new Set((await this.session.heirs(signal)).map(toHex));
    const start = seen.checked_seq;
    let end: number | null = null;
    let at = { seq: start, head: start > 0 ? fromHex(seen.checked_head, 32, "hash") : NO_HEAD };
    let newest = { seq: 0, head: "" };
    const followed: Receipt[] = [];
    while (end === null || at.seq < end || !heirs.has(toHex(followed.at(-1)!.relayer))) {
      const query = { after: at.seq, limit: RECEIPTS_PAGE };
      const call: Call = { method: "GET", path: "/v1/receipts", query, signal };
      const page = await this.session.call<"listReceipts">(call);
      newest = { seq: parseInteger(page.seq, "seq"), head: page.head };
      end ??= newest.seq;
      if (!known.has(end)) known.set(end, newest.head);
      const objects = parseList(page.receipts, "receipts").map((one) => parseBytes(one, "receipt"));
      const history = new History(relayers, this.session.account, at);
      for (const data of objects) {
        const one = history.follow(data);
        await rest();
        if ((known.get(one.seq) ?? toHex(one.digest)) !== toHex(one.digest)) {
          throw new UntrustedRelayer("fork", "The relayer rewrote a receipt it had given.");
        }
        followed.push(one);
      }
      if (objects.length === 0) break;
      at = { seq: followed.at(-1)!.seq, head: followed.at(-1)!.digest };
      onProgress?.(followed.length, Math.max(at.seq, end) - start);
    }
    if (at.seq < Math.max(seen.receipt_seq, end ?? 0) || at.seq > newest.seq) {
      throw new UntrustedRelayer("rollback", "The relayer withholds receipts.");
    }
    if (at.seq === newest.seq && newest.head !== toHex(at.head)) {
      throw new UntrustedRelayer("fork", "The relayer's history is not the one it gave before.");
    }
    if (followed.length > 0) await this.checkNewest(followed.at(-1)!, { signal });
    await this.session.noteChecked(at.seq, at.head);
    return followed;
  }

  /** Returns where the account's history stands, verified, to keep and to compare. */
  async checkpoint(options: Ending = {}): Promise<Checkpoint> {
    const call: Call = { method: "GET", path: "/v1/checkpoint", ...options };
    const answer = await this.session.call<"getCheckpoint">(call);
    const data = parseBytes(answer.checkpoint, "checkpoint");
    // Not by a key before the pinned one: anybody can name that one as their heir.
    const heirs = await this.session.heirs(options.signal);
    return readCheckpoint(data, heirs, this.session.account);
  }

  /**
   * Checks that the pinned key, or one that it led to, stands for the chain that ends here.
   *
   * @throws {UntrustedRelayer} an earlier key signed it, and no checkpoint names it.
   */
  async checkNewest(receipt: Receipt, options: Ending = {}): Promise<void> {
    const heirs = await this.session.heirs(options.signal);
    if (heirs.some((key) => sameBytes(key, receipt.relayer))) return;
    const stands = await this.checkpoint(options);
    if (stands.seq !== receipt.seq || !sameBytes(stands.head, receipt.digest)) {
      throw new UntrustedRelayer("chain", "The pinned key does not stand for the receipts.");
    }
  }

  /** Sends a body about one namespace or several, with their keys, and returns the answer. */
  protected async post<Name extends OperationName>(
    path: string,
    body: Readonly<Record<string, unknown>>,
    about: Ending & {
      readonly namespace?: string | null | undefined;
      readonly namespaces?: readonly string[] | null | undefined;
      readonly namesRelayer?: boolean;
      readonly answerBytesMax?: number;
    },
  ): Promise<AnswerOf<Name>> {
    const { namespace, namespaces, ...more } = about;
    if (namespace != null && namespaces != null) {
      throw new ConfigError("Give a namespace or several namespaces, not both.");
    }
    if (namespaces?.length === 0) {
      throw new ConfigError("namespaces has no name in it; leave it out for the client's own.");
    }
    const names = namespaces ?? [this.namespaceOf(namespace)];
    names.forEach(normaliseNamespace);
    const place = namespaces == null ? { namespace: names[0] } : { namespaces: names };
    return this.session.call<Name>({
      method: "POST",
      path,
      body: { ...body, ...place },
      unlock: names,
      ...more,
    });
  }

  /** Returns a namespace, or the client's own. */
  protected namespaceOf(namespace: string | null | undefined): string {
    return namespace ?? this.session.settings.namespace;
  }
}

/**
 * Returns an id as a part of a path; one from outside must not lead to another route.
 *
 * @throws {ConfigError} it is none.
 */
export function segment(id: string): string {
  if (!/^[0-9A-Za-z-]+$/.test(id)) {
    throw new ConfigError("An id has letters, digits and hyphens only.");
  }
  return id;
}
