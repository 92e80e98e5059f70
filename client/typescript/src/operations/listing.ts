/**
 * Lists memories, a memory's history, what waits for review, and kept conversations.
 *
 * Not here: recall (`reading.ts`), what changes memories (`writing.ts`, `correcting.ts`).
 *
 * Source: SPEC.md §11, §13.
 */

import type { AnswerOf, Ending, Given, OperationName, QueryOf, Schemas } from "../description.ts";
import { malformedAnswer, NotGranted } from "../errors.ts";
import { ANSWER_BYTES_MAX, LONG_ANSWER_BYTES_MAX, memoriesBytesMax } from "../exchange.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { blamingRelayer } from "../sealed/statement.ts";
import { parseList, type QueryValue } from "../session.ts";
import { type InNamespace, Reading, segment } from "./reading.ts";

const PAGE = 20;
const UNLOCK_NAMES_MAX = 16; // surely fit into one header

/** What narrows a list of memories; `tag` has each of its words. */
export type ListOptions = Given<QueryOf<"listMemories">> & Ending;

/** A page of what waits for review. */
export type ReviewOptions = Given<QueryOf<"listReview">> & Ending;

/** A page of kept conversations. */
export type EpisodeOptions = Given<QueryOf<"listEpisodes">> & Ending;

type Query = Readonly<Record<string, QueryValue>>;

/** The operations that show what there is, without a query. */
export class Listing extends Reading {
  /** Returns a page of memories, newest first. */
  async list(options: ListOptions = {}): Promise<Schemas["MemoriesAnswer"]> {
    const answerBytesMax = memoriesBytesMax(options.limit ?? PAGE);
    return this.#page<"listMemories">("/v1/memories", options, answerBytesMax);
  }

  /** Yields memories, newest first, page by page, to the last. */
  async *listAll(options: ListOptions = {}): AsyncGenerator<Schemas["MemoryAnswer"], void> {
    let cursor = options.cursor;
    for (;;) {
      const page = await this.list({ ...options, cursor });
      yield* parseList(page.memories, "memories");
      const next = onward(cursor, page.next_cursor);
      if (next === undefined) return;
      cursor = next;
    }
  }

  /** Returns a page of the memories that somebody should look at, and why. */
  async review(options: ReviewOptions = {}): Promise<Schemas["ReviewAnswer"]> {
    // With each come all that it contradicts.
    return this.#page<"listReview">("/v1/review", options, LONG_ANSWER_BYTES_MAX);
  }

  /** Returns a page of the conversations that were kept, without their texts. */
  async episodes(options: EpisodeOptions = {}): Promise<Schemas["EpisodesAnswer"]> {
    return this.#page<"listEpisodes">("/v1/episodes", options, ANSWER_BYTES_MAX);
  }

  #page<Name extends OperationName>(
    path: string,
    options: ListOptions | ReviewOptions | EpisodeOptions,
    answerBytesMax: number,
  ): Promise<AnswerOf<Name>> {
    const { signal, namespace, namespaces, ...filters } = options as ListOptions;
    const names = namespaces ?? [this.namespaceOf(namespace)];
    names.forEach(normaliseNamespace);
    const place = namespaces ? { namespaces: names } : { namespace: names[0] };
    const query: Query = { limit: PAGE, ...place, ...filters };
    return this.session.call<Name>({
      method: "GET",
      path,
      query,
      unlock: names,
      answerBytesMax,
      signal,
    });
  }

  /**
   * Returns one memory, or an earlier revision of it.
   *
   * Without a namespace, the keys of several of one's own are sent.
   */
  async get(
    id: string,
    options: InNamespace & { readonly revision?: number } = {},
  ): Promise<Schemas["ReadMemoryAnswer"]> {
    const query = { revision: options.revision };
    return this.#one<"getMemory">(`/v1/memories/${segment(id)}`, query, options);
  }

  /** Returns all revisions of a memory, newest first. */
  async history(id: string, options: InNamespace = {}): Promise<Schemas["HistoryAnswer"]> {
    const path = `/v1/memories/${segment(id)}/history`;
    const revisions: Schemas["MemoryAnswer"][] = [];
    let cursor: string | undefined;
    for (;;) {
      const page = await this.#one<"getMemoryHistory">(path, { cursor }, options);
      revisions.push(...parseList(page.revisions, "revisions"));
      cursor = onward(cursor, page.next_cursor);
      if (cursor === undefined) return { ...page, revisions };
    }
  }

  /** Returns a conversation that was kept, with its text. */
  async episode(id: string, options: InNamespace = {}): Promise<Schemas["EpisodeAnswer"]> {
    return this.#one<"getEpisode">(`/v1/episodes/${segment(id)}`, {}, options);
  }

  async #one<Name extends OperationName>(
    path: string,
    query: Query,
    options: InNamespace,
  ): Promise<AnswerOf<Name>> {
    const { signal } = options;
    const unlock = await this.likelyNames(options);
    return this.session.call<Name>({ method: "GET", path, query, unlock, signal });
  }

  /** Returns the namespaces whose keys go out with a memory's id: the one, if it is known. */
  protected async likelyNames(options: InNamespace): Promise<readonly string[]> {
    const { namespace, signal } = options;
    if (namespace !== undefined) return [namespace];
    const usual = normaliseNamespace(this.session.settings.namespace);
    if (!(await this.session.isSealed(signal))) return [usual];
    const keyring = await this.session.keyring(signal);
    let names: readonly string[] = keyring.names;
    if (keyring.isWholeAccount) {
      const told = (await this.namespaces({ signal })).map((one) =>
        blamingRelayer("The relayer", () => normaliseNamespace(one.name)),
      );
      // Of a new account none is told yet, and still no memory is a plain answer.
      const all = new Set([...names, ...told]);
      names = all.size > 0 ? [...all] : [usual];
    }
    if (names.length === 0) throw new NotGranted("This key holds no namespace.");
    const first = names.includes(usual) ? [usual] : [];
    return [...first, ...names.filter((name) => name !== usual)].slice(0, UNLOCK_NAMES_MAX);
  }
}

/**
 * Returns the cursor of the page that follows the one that was asked for.
 *
 * @throws {ServerError} `answer.malformed`, when it leads to the same page again.
 */
export function onward(
  asked: string | undefined,
  following: string | null | undefined,
): string | undefined {
  if (following != null && following === asked) {
    throw malformedAnswer("a cursor that leads nowhere");
  }
  return following ?? undefined;
}
