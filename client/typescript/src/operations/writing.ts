/**
 * Stores memories, one or many, from texts and conversations.
 *
 * Not here: reading (`reading.ts`), changing what is stored (`correcting.ts`, `forgetting.ts`).
 *
 * - A write has an idempotency key, made once per logical call: repeating it stores nothing twice.
 * - Every receipt that comes with an answer is verified before the answer is returned.
 *
 * Source: SPEC.md §11.
 */

import { utf8 } from "../bytes.ts";
import type { Ending, Given, Schemas } from "../description.ts";
import { ConfigError, malformedAnswer, TimedOut, UntrustedRelayer } from "../errors.ts";
import { sleep } from "../exchange.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { randomUuid } from "../sealed/primitives.ts";
import type { Op, RequestState } from "../sealed/receipts.ts";
import { blamingRelayer } from "../sealed/statement.ts";
import { parseList, parseText } from "../session.ts";
import { Listing } from "./listing.ts";
import type { InNamespace } from "./reading.ts";

const BULK_ITEMS_MAX = 20;
const BULK_ITEM_BYTES_MAX = 64 * 1024; // longer ones go alone; 20 of these stay below 2 MiB
const STATUS_IDS_MAX = 100;
const BESIDE: readonly Op[] = ["state", "forget"];
const FINAL: readonly string[] = ["done", "failed", "not_found"];
const FIRST = 1; // the revision of what is new
const REJECTED = "rejected";
const CONCURRENCY = 4;

/** What a memory may have beside its text. */
export type RememberOptions = Given<Omit<Schemas["RememberBody"], "text" | "relayer">> & Ending;

/** A memory to be stored: its text and what else it may have. */
export type Draft = Given<Omit<Schemas["RememberBody"], "text" | "relayer">> & {
  readonly text: string;
};

/** What became of one of many memories; one that was out of range has the status `rejected`. */
export type ManyRemembered = Schemas["StoredItem"] | Schemas["RejectedItem"];

/** How many memories to store at once, and whom to tell of it. */
export interface ManyOptions extends InNamespace {
  /** Is called with the number stored so far, and the total. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Requests that are under way at once. */
  readonly concurrency?: number;
}

/** What a conversation may have beside its text. */
export type AnalyzeOptions = Given<Omit<Schemas["AnalyzeBody"], "text" | "relayer">> & Ending;

/** A body of a memory that names its namespace and has an idempotency key. */
type Body = Record<string, unknown> & { readonly namespace: string };

/** The operations that store memories, and all that read them. */
export class Writing extends Listing {
  /** Stores one memory; when this resolves, it is durable and found by its words. */
  async remember(text: string, options: RememberOptions = {}): Promise<Schemas["RememberAnswer"]> {
    const { signal, ...members } = options;
    return this.#rememberOne(this.#body({ ...members, text }), signal);
  }

  async #rememberOne(body: Body, signal?: AbortSignal): Promise<Schemas["RememberAnswer"]> {
    const asked = await this.session.noteRequest([body.namespace]);
    const answer = await this.session.call<"remember">({
      method: "POST",
      path: "/v1/remember",
      body,
      unlock: [body.namespace],
      namesRelayer: true,
      signal,
    });
    const receipts = answer.receipt === null ? [] : [answer.receipt];
    await this.#checkReceipts(receipts, [answer], [body], asked);
    await this.noteOthers(answer.other_receipts, asked);
    return answer;
  }

  /**
   * Stores many memories in requests of up to 20; the results are in the order of `items`.
   *
   * An item that is out of range has the status `rejected` and says why. The first error ends it;
   * what was stored stays stored.
   */
  async rememberMany(
    items: readonly (string | Draft)[],
    options: ManyOptions = {},
  ): Promise<readonly ManyRemembered[]> {
    const { signal, onProgress, concurrency = CONCURRENCY } = options;
    if (!Array.isArray(items)) throw new ConfigError("items is a list of memories.");
    const bodies = items.map((item: string | Draft) => {
      const draft = typeof item === "string" ? { text: item } : item;
      return this.#body({ ...draft, namespace: draft.namespace ?? options.namespace });
    });
    if (await this.session.isSealed(signal)) {
      // Fetched once here, not by each of the concurrent requests.
      await this.session.statement(signal);
      await this.session.keyring(signal);
    }
    const chunks = [...inChunks(bodies)];
    const results: (readonly ManyRemembered[])[] = new Array(chunks.length);
    let [next, done] = [0, 0];
    const work = async (): Promise<void> => {
      while (next < chunks.length) {
        const at = next++;
        results[at] = await this.#rememberChunk(chunks[at]!, signal);
        done += results[at].length;
        onProgress?.(done, bodies.length);
      }
    };
    const workers = Math.max(1, Math.min(concurrency, chunks.length));
    const stop = (error: unknown): never => {
      next = chunks.length; // no further request begins
      throw error;
    };
    await Promise.all(Array.from({ length: workers }, () => work().catch(stop)));
    return results.flat();
  }

  async #rememberChunk(
    bodies: readonly Body[],
    signal: AbortSignal | undefined,
  ): Promise<readonly ManyRemembered[]> {
    if (bodies.length === 1) return [await this.#rememberOne(bodies[0]!, signal)];
    const names = [...new Set(bodies.map((body) => body.namespace))];
    const asked = await this.session.noteRequest(names);
    const answer = await this.session.call<"rememberBulk">({
      method: "POST",
      path: "/v1/remember/bulk",
      body: { items: bodies },
      unlock: names,
      namesRelayer: true,
      signal,
    });
    const results = parseList(answer.results, "results");
    if (results.length !== bodies.length) {
      throw new UntrustedRelayer("results", "The relayer answered for other items than it got.");
    }
    await this.#checkReceipts(answer.receipts, results, bodies, asked);
    await this.noteOthers(answer.other_receipts, asked);
    return results;
  }

  /** Checks that every new memory is one of its own, in a receipt for its namespace. */
  async #checkReceipts(
    receipts: readonly string[],
    results: readonly ManyRemembered[],
    bodies: readonly Body[],
    asked: RequestState,
  ): Promise<void> {
    const recorded = await this.#readRecorded(receipts, "remember", asked);
    results.forEach((result, at) => {
      if (result.status === REJECTED) return;
      if (!("namespace" in result)) throw malformedAnswer("namespace");
      const namespace = normaliseNamespace(bodies[at]!.namespace);
      const told = parseText(result.namespace, "namespace");
      if (blamingRelayer("The relayer", () => normaliseNamespace(told)) !== namespace) {
        throw new UntrustedRelayer("namespace", "The relayer answered for another namespace.");
      }
      // Once only: with one receipt for two, one of them might be lost.
      if (!result.duplicate && !recorded.delete(placeOf(result.id, FIRST, namespace))) {
        throw new UntrustedRelayer("receipt", "A new memory came without its receipt.");
      }
    });
  }

  /** Returns the ids, revisions and namespaces that these receipts vouch for, each verified. */
  async #readRecorded(
    receipts: readonly string[],
    op: Op,
    asked: RequestState,
  ): Promise<Set<string>> {
    const recorded = new Set<string>();
    for (const text of parseList(receipts, "receipts")) {
      const receipt = await this.session.noteReceipt(text, { op, asked });
      for (const item of receipt.items) {
        recorded.add(placeOf(item.id, item.revision, receipt.namespace));
      }
    }
    return recorded;
  }

  /** Returns the ids that these receipts vouch for, each verified. */
  protected async readRecordedIds(
    receipts: readonly string[],
    op: Op,
    asked: RequestState,
  ): Promise<Set<string>> {
    const recorded = await this.#readRecorded(receipts, op, asked);
    return new Set([...recorded].map((place) => (JSON.parse(place) as [string])[0]));
  }

  /**
   * Waits until memories are done (found by vector too), failed or gone; asks ever less often.
   *
   * With `untilUploaded`, being stored and found by keyword is enough.
   *
   * @throws {TimedOut} some are still under way after `timeoutMs`.
   */
  async wait(
    ids: readonly string[],
    options: Ending & { readonly timeoutMs?: number; readonly untilUploaded?: boolean } = {},
  ): Promise<readonly Schemas["MemoryStatus"][]> {
    const { signal, timeoutMs = 60_000, untilUploaded = false } = options;
    const untilMs = performance.now() + timeoutMs;
    const known = new Map<string, Schemas["MemoryStatus"]>();
    const isFinal = (id: string): boolean => {
      const status = known.get(id)?.status ?? "";
      return FINAL.includes(status) || (untilUploaded && status === "uploaded");
    };
    for (let pauseMs = 100; ; pauseMs = Math.min(5_000, 1.5 * pauseMs)) {
      const open = ids.filter((id) => !isFinal(id));
      for (let at = 0; at < open.length; at += STATUS_IDS_MAX) {
        const asked = open.slice(at, at + STATUS_IDS_MAX);
        for (const status of await this.status(asked, { signal })) {
          if (asked.includes(status.id)) known.set(status.id, status);
        }
      }
      if (ids.every(isFinal)) return ids.map((id) => known.get(id)!);
      if (performance.now() + pauseMs > untilMs) {
        throw new TimedOut("Some memories are still under way.");
      }
      await sleep(pauseMs, signal);
    }
  }

  /**
   * Finds the facts worth keeping in a text or conversation, and stores them.
   *
   * Dates such as "yesterday" are resolved against `occurred_at`, when it is given: its day is that
   * of its own time zone, which a text names and a `Date` does not.
   */
  async analyze(text: string, options: AnalyzeOptions = {}): Promise<Schemas["AnalyzeAnswer"]> {
    const { signal, namespace, ...members } = options;
    const asked = await this.session.noteRequest([this.namespaceOf(namespace)]);
    const body = { text, ...members, idempotency_key: members.idempotency_key ?? randomUuid() };
    const about = { namespace, namesRelayer: true, signal };
    const answer = await this.post<"analyze">("/v1/analyze", body, about);
    return this.noteAnalysis(answer, asked);
  }

  /**
   * Returns what a conversation became; every new fact stands in a receipt.
   *
   * @throws {UntrustedRelayer} one does not, or a receipt is false.
   */
  protected async noteAnalysis(
    answer: Schemas["AnalyzeAnswer"],
    asked: RequestState,
  ): Promise<Schemas["AnalyzeAnswer"]> {
    const recorded = await this.#readRecorded(answer.receipts, "analyze", asked);
    const places = [...recorded].map((place) => JSON.parse(place) as [string, number]);
    const fresh = new Set(places.filter(([, revision]) => revision === FIRST).map(([id]) => id));
    if (parseList(answer.facts, "facts").some((fact) => !fact.duplicate && !fresh.has(fact.id))) {
      throw new UntrustedRelayer("receipt", "A new fact stands in no receipt.");
    }
    await this.noteOthers(answer.other_receipts, asked);
    return answer;
  }

  /** Verifies the receipts of what a write did beside storing: of states and erasures. */
  protected async noteOthers(
    receipts: readonly string[] | null | undefined,
    asked: RequestState,
  ): Promise<void> {
    for (const text of receipts ?? []) await this.session.noteReceipt(text, { op: BESIDE, asked });
  }

  /** Rebuilds a namespace's index from its stored objects. */
  restore(
    options: InNamespace & { readonly limit?: number } = {},
  ): Promise<Schemas["RestoreAnswer"]> {
    const { limit, ...about } = options;
    const call = { ...about, namesRelayer: true };
    return this.post<"restoreNamespace">("/v1/restore", limit === undefined ? {} : { limit }, call);
  }

  #body(draft: Draft): Body {
    return {
      ...draft,
      namespace: this.namespaceOf(draft.namespace),
      idempotency_key: draft.idempotency_key ?? randomUuid(),
    };
  }
}

function placeOf(id: string, revision: number, namespace: string | null): string {
  return JSON.stringify([id, revision, namespace]);
}

function* inChunks(bodies: readonly Body[]): Generator<readonly Body[]> {
  let chunk: Body[] = [];
  for (const body of bodies) {
    const isAlone = utf8(JSON.stringify(body)).length > BULK_ITEM_BYTES_MAX;
    if (chunk.length > 0 && (isAlone || chunk.length === BULK_ITEMS_MAX)) {
      yield chunk;
      chunk = [];
    }
    if (isAlone) yield [body];
    else chunk.push(body);
  }
  if (chunk.length > 0) yield chunk;
}
