/**
 * Erases a memory, several, those that fit, a namespace or the account.
 *
 * Not here: what else changes memories (`writing.ts`, `correcting.ts`).
 *
 * - Erasing is bounded per request: what is more goes on with the next one, until nothing is left.
 * - Repeating does no harm: what is gone is told to be gone.
 * - Every receipt that comes with an answer is verified, and must name what is told to be erased.
 *
 * Source: SPEC.md §14.
 */

import type { Ending, Given, Schemas } from "../description.ts";
import { ConfigError, malformedAnswer, UntrustedRelayer } from "../errors.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import type { RequestState } from "../sealed/receipts.ts";
import { parseList } from "../session.ts";
import { checkSameId, Correcting } from "./correcting.ts";
import { segment } from "./reading.ts";

const FORGET_IDS_MAX = 100; // in one request
const IDS_TOLD_MAX = 100;
const READ_TO_MATCH = ["tags", "source"] as const; // found by keyed hashes

/** Only tell what would be erased; whom to tell how many were. */
export interface ForgetOptions extends Ending {
  readonly dryRun?: boolean;
  readonly onProgress?: (erased: number) => void;
}

/** The filters of what is to be erased; a memory must fit all that are given. */
export type ForgetFilters = Given<Omit<Schemas["ForgetBody"], "relayer" | "ids" | "dry_run">>;

/** What was erased, or with a dry run would be; `more` are still there. */
export type Forgotten = Schemas["ForgetSeveralAnswer"];

/** The operations that erase, and all others on memories. */
export class Forgetting extends Correcting {
  /** Erases one memory with its history; the same words may be remembered anew later. */
  async forget(id: string, options: Ending = {}): Promise<Schemas["ForgetMemoryAnswer"]> {
    const path = `/v1/memories/${segment(id)}`;
    const asked = await this.session.noteRequest();
    const call = { method: "DELETE", path, namesRelayer: true, ...options } as const;
    const answer = await this.session.call<"forgetMemory">(call);
    const receipts = new Set(parseList(answer.receipts, "receipts"));
    if (answer.receipt !== null) receipts.add(answer.receipt);
    const recorded = await this.readRecordedIds([...receipts], "forget", asked);
    checkSameId(id, answer.id);
    if (answer.erased && !answer.already && !recorded.has(answer.id)) {
      throw new UntrustedRelayer("receipt", "A receipt leaves out what was erased.");
    }
    return answer;
  }

  /**
   * Erases the memories of these ids; `results` tells what became of each.
   *
   * @throws {NotAllowed} one of them is of a namespace that this key may only read; of the request
   *   of up to 100 that it was in, none was erased.
   */
  async forgetMany(ids: readonly string[], options: ForgetOptions = {}): Promise<Forgotten> {
    const wanted = [...new Set(ids)];
    let total = NOTHING;
    for (let at = 0; at < wanted.length; at += FORGET_IDS_MAX) {
      const some = wanted.slice(at, at + FORGET_IDS_MAX);
      const found = await this.#forget({ ids: some }, null, options);
      const results = found.results ?? [];
      for (let one = 0; one < Math.max(some.length, results.length); one++) {
        checkSameId(some[one] ?? "", results[one]?.id ?? "");
      }
      total = sum(total, found);
      options.onProgress?.(total.erased);
    }
    return total;
  }

  /**
   * Erases what a list with these filters shows, all of it, with its history.
   *
   * @throws {ConfigError} there is no filter, or one of no tags; `forgetNamespace` erases all.
   */
  async forgetMatching(filters: ForgetFilters, options: ForgetOptions = {}): Promise<Forgotten> {
    const { namespace, ...given } = filters;
    const narrowing = Object.fromEntries(
      Object.entries(given).filter(([, value]) => value !== undefined && value !== null),
    );
    if (Object.keys(narrowing).length === 0) {
      throw new ConfigError("Without a filter, this would forget everything in the namespace.");
    }
    if (Array.isArray(narrowing["tags"]) && narrowing["tags"].length === 0) {
      throw new ConfigError("tags names none: without it, this would forget more than that.");
    }
    return this.#forgetMatching(namespace, narrowing, options);
  }

  /** Returns what `forgetNamespace` would erase; nothing is. */
  forgettable(namespace?: string, options: Ending = {}): Promise<Forgotten> {
    return this.#forgetMatching(namespace, { state: "all" }, { ...options, dryRun: true });
  }

  async #forgetMatching(
    namespace: string | null | undefined,
    narrowing: Readonly<Record<string, unknown>>,
    options: ForgetOptions,
  ): Promise<Forgotten> {
    const name = this.namespaceOf(namespace);
    const unlock = READ_TO_MATCH.some((member) => member in narrowing) ? [name] : null;
    let total = NOTHING;
    for (;;) {
      const found = await this.#forget({ namespace: name, ...narrowing }, unlock, options);
      total = further(total, found);
      options.onProgress?.(total.erased);
      if (options.dryRun || !found.more) return total;
    }
  }

  async #forget(
    given: Readonly<Record<string, unknown>>,
    unlock: readonly string[] | null,
    options: ForgetOptions,
  ): Promise<Forgotten> {
    const { dryRun = false, signal } = options;
    const names = "namespace" in given ? [given["namespace"] as string] : null;
    const asked = await this.session.noteRequest(names);
    const answer = await this.session.call<"forget">({
      method: "POST",
      path: "/v1/forget",
      body: { ...given, dry_run: dryRun },
      namesRelayer: true,
      signal,
      ...(unlock && { unlock }),
    });
    await this.#checkErased(answer, dryRun, asked);
    return answer;
  }

  async #checkErased(answer: Forgotten, dryRun: boolean, asked: RequestState): Promise<void> {
    const recorded = await this.readRecordedIds(answer.receipts, "forget", asked);
    if (dryRun) return;
    if (answer.more && !answer.erased) throw malformedAnswer("a part that erased nothing");
    const told = (answer.results ?? []).filter((one) => one.status === "erased");
    const erased = told.length > 0 ? told.map((one) => one.id) : parseList(answer.ids, "ids");
    if (erased.some((id) => !recorded.has(id)) || recorded.size < answer.erased) {
      throw new UntrustedRelayer("receipt", "A receipt leaves out what was erased.");
    }
  }

  /** Erases everything in a namespace, whatever its state, and the namespace with it. */
  async forgetNamespace(name: string, options: ForgetOptions = {}): Promise<Forgotten> {
    const path = `/v1/namespaces/${encodeURIComponent(normaliseNamespace(name))}`;
    let total = NOTHING;
    for (;;) {
      const asked = await this.session.noteRequest([name]);
      const { signal } = options;
      const call = { method: "DELETE", path, namesRelayer: true, signal } as const;
      const found = await this.session.call<"forgetNamespace">(call);
      await this.#checkErased(found, false, asked);
      total = further(total, found);
      options.onProgress?.(total.erased);
      if (!found.more) return total;
    }
  }

  /**
   * Lets memories of a namespace expire so many seconds after they were stored; null: never.
   *
   * It counts for those that are there as well, except pinned ones.
   */
  async setTtl(
    name: string,
    ttlS: number | null,
    options: Ending = {},
  ): Promise<Schemas["NamespaceChanged"]> {
    const path = `/v1/namespaces/${encodeURIComponent(normaliseNamespace(name))}`;
    for (;;) {
      const kept = await this.change<"putNamespace">("PUT", path, { ttl_s: ttlS }, options);
      if (!kept.more) return kept;
      if (!kept.changed) throw malformedAnswer("a part that changed nothing");
    }
  }

  /**
   * Erases the account: memories, grants, keys and history; nobody can found it again.
   *
   * @throws {UntrustedRelayer} the relayer gave no receipt for it.
   */
  async closeAccount(options: Ending = {}): Promise<Schemas["CloseAnswer"]> {
    const { accountId } = this.session.settings;
    const answer = await this.session.call<"closeAccount">({
      method: "DELETE",
      path: `/v1/accounts/${accountId}`,
      query: { confirm: accountId },
      namesRelayer: true,
      isRepeatable: false,
      ...options,
    });
    const receipts = parseList(answer.receipts, "receipts");
    if (!answer.closed || receipts.length === 0) {
      throw new UntrustedRelayer("receipt", "The account was closed without a receipt.");
    }
    for (const receipt of receipts) await this.session.noteReceipt(receipt, { op: "close" });
    return answer;
  }
}

const NOTHING: Forgotten = {
  matched: 0,
  erased: 0,
  more: false,
  pending: false,
  ids: [],
  receipts: [],
};

type Part = Omit<Forgotten, "results"> & Pick<Partial<Forgotten>, "results">;

function sum(before: Forgotten, found: Part): Forgotten {
  const results = [...(before.results ?? []), ...(found.results ?? [])];
  return {
    matched: before.matched + found.matched,
    erased: before.erased + found.erased,
    more: found.more,
    pending: before.pending || found.pending,
    ids: [...before.ids, ...found.ids].slice(0, IDS_TOLD_MAX),
    receipts: [...before.receipts, ...found.receipts],
    ...(results.length > 0 && { results }),
  };
}

function further(before: Forgotten, found: Part): Forgotten {
  // What is left counts as matching again.
  return { ...sum(before, found), matched: Math.max(before.matched, found.matched) };
}
