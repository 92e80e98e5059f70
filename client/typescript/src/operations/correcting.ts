/**
 * Corrects texts, states, what waits for review, and the account's settings.
 *
 * Not here: storing (`writing.ts`), erasing (`forgetting.ts`).
 *
 * - An edit names the revision it was made from, so that nobody's newer words are lost by it.
 * - A state that is so already is left alone, and gives no receipt: repeating does no harm.
 * - Every receipt that comes with an answer is verified before the answer is returned.
 *
 * Source: SPEC.md §13.
 */

import type { AnswerOf, Ending, Given, OperationName, Schemas } from "../description.ts";
import { UntrustedRelayer } from "../errors.ts";
import { randomUuid } from "../sealed/primitives.ts";
import type { InNamespace } from "./reading.ts";
import { segment } from "./reading.ts";
import { Writing } from "./writing.ts";

/**
 * What an edit changes; what is not given stays.
 *
 * Null takes a `source`, `event_time` or `expires_at` away. `revision` is the one that was seen,
 * `namespace` the one the memory is in, which saves sending the keys of others.
 */
export type EditOptions = Given<Omit<Schemas["EditBody"], "relayer">> & InNamespace;

/** What is said about a memory, beside what it says. */
export type StateChange = Given<Omit<Schemas["StateBody"], "relayer">>;

/** The operations that change what is stored, and all that store and read. */
export class Correcting extends Writing {
  /**
   * Corrects a memory; its earlier revision stays as history.
   *
   * @throws {Conflict} `memory.revision`, it has another revision by now; `memory.duplicate`,
   *   another memory says this already.
   */
  async edit(id: string, options: EditOptions): Promise<Schemas["EditAnswer"]> {
    const { signal, namespace, ...changes } = options;
    const body = { ...changes, idempotency_key: changes.idempotency_key ?? randomUuid() };
    const unlock = await this.likelyNames({ namespace, signal });
    const path = `/v1/memories/${segment(id)}`;
    const asked = await this.session.noteRequest();
    const answer = await this.change<"editMemory">("PATCH", path, body, { unlock, signal });
    checkSameId(id, answer.id);
    if (!answer.unchanged) {
      const receipt = await this.session.noteReceipt(answer.receipt, { op: "edit", asked });
      const isOfRevision = receipt.items.some(
        (item) => item.id === answer.id && item.revision === answer.revision,
      );
      if (!isOfRevision) {
        throw new UntrustedRelayer("receipt", "A receipt is for another revision.");
      }
    }
    return answer;
  }

  /** Protects a memory from being superseded by rule, merged, or expired by its namespace. */
  pin(id: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { pinned: true }, options);
  }

  /** Takes a memory's protection away. */
  unpin(id: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { pinned: false }, options);
  }

  /** Lets a memory that waits be recalled, or one that is doubted stand beside the others. */
  approve(id: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { review: "approved" }, options);
  }

  /** Keeps a memory out of recall; it stays known, so that it is not stored again. */
  reject(id: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { review: "rejected" }, options);
  }

  /** Lets another memory take the place of this one, which stays as history. */
  supersede(id: string, by: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { superseded_by: by }, options);
  }

  /**
   * Brings a superseded memory back into recall.
   *
   * @throws {Conflict} another memory says the same by now.
   */
  reinstate(id: string, options: Ending = {}): Promise<Schemas["StateAnswer"]> {
    return this.setState(id, { superseded_by: null }, options);
  }

  /** Changes what is said about a memory, not what it says. */
  async setState(
    id: string,
    changes: StateChange,
    options: Ending = {},
  ): Promise<Schemas["StateAnswer"]> {
    const path = `/v1/memories/${segment(id)}/state`;
    const asked = await this.session.noteRequest();
    const answer = await this.change<"setMemoryState">("POST", path, changes, options);
    checkSameId(id, answer.id);
    if (answer.receipt !== null) {
      await this.session.noteReceipt(answer.receipt, { op: "state", ids: [answer.id], asked });
    }
    return answer;
  }

  /** Lets a doubted memory take the place of the others, which it speaks against. */
  async resolve(
    id: string,
    others: readonly string[],
    options: Ending = {},
  ): Promise<Schemas["StateAnswer"]> {
    for (const other of others) await this.supersede(other, id, options);
    return this.approve(id, options);
  }

  /** Finds the facts of a kept conversation again; known ones are not stored twice. */
  async analyzeEpisode(id: string, options: InNamespace = {}): Promise<Schemas["AnalyzeAnswer"]> {
    const unlock = await this.likelyNames(options);
    const path = `/v1/episodes/${segment(id)}/analyze`;
    const asked = await this.session.noteRequest();
    const more = { unlock, signal: options.signal };
    return this.noteAnalysis(await this.change<"analyzeEpisode">("POST", path, {}, more), asked);
  }

  /** Chooses anew for the account; what is not given stays. Owners only. */
  async changeSettings(
    changes: Given<Omit<Schemas["SettingsBody"], "relayer">>,
    options: Ending = {},
  ): Promise<Schemas["AccountSettings"]> {
    const path = "/v1/settings";
    return (await this.change<"changeSettings">("PATCH", path, changes, options)).settings;
  }

  /** Sends a body that names the relayer. */
  protected change<Name extends OperationName>(
    method: "POST" | "PATCH" | "PUT",
    path: string,
    body: Readonly<Record<string, unknown>>,
    more: Ending & { readonly unlock?: readonly string[] },
  ): Promise<AnswerOf<Name>> {
    return this.session.call<Name>({ method, path, body, namesRelayer: true, ...more });
  }
}

/**
 * Returns when an answer is about the memory that it was asked for, however its id is written.
 *
 * @throws {UntrustedRelayer} `id`, when it is another one's: with it, an older receipt would pass.
 */
export function checkSameId(asked: string, told: unknown): void {
  const plain = (id: unknown): string => String(id).replaceAll("-", "").toLowerCase();
  if (plain(asked) !== plain(told)) {
    throw new UntrustedRelayer("id", "The relayer answered for another memory than asked.");
  }
}
