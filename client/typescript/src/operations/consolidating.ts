/**
 * Has memories consolidated: begins a run, shows what runs did, takes one back.
 *
 * Not here: other changes to memories (`correcting.ts`, `forgetting.ts`).
 *
 * - A run works in the background; on a sealed account with the keys lent with its request.
 * - Beginning again while a run is unfinished gives that run; undoing again changes nothing.
 * - Every receipt that comes with an answer is verified before the answer is returned.
 *
 * Source: SPEC.md §19.
 */

import type { Ending, Given, QueryOf, Schemas } from "../description.ts";
import { malformedAnswer } from "../errors.ts";
import { type Call, parseList } from "../session.ts";
import { onward } from "./listing.ts";
import { type InNamespace, segment } from "./reading.ts";
import { Rotating } from "./rotating.ts";

const PATH = "/v1/consolidations";
const PAGE = 200;

/** A page of runs; without a namespace, of all that the key may read. */
export type ConsolidationsOptions = Given<QueryOf<"listConsolidations">> & Ending;

/** A run: `queued`, `running`, `waiting`, `done`, `undone` or `refused`. */
export type Consolidation = Schemas["RunAnswer"];

/** Consolidation, and all operations on memories and keys. */
export class Consolidating extends Rotating {
  /** Begins to merge, flag and summarise a namespace's memories, in the background. */
  async consolidate(options: InNamespace = {}): Promise<Consolidation> {
    return (await this.#begin(options, false)) as Consolidation;
  }

  /** Returns what a run would do now, without what a language model would find. */
  async planConsolidation(options: InNamespace = {}): Promise<Schemas["PlanAnswer"]> {
    return (await this.#begin(options, true)) as Schemas["PlanAnswer"];
  }

  #begin(options: InNamespace, dryRun: boolean): Promise<Consolidation | Schemas["PlanAnswer"]> {
    const about = { ...options, namesRelayer: true };
    return this.post<"consolidate">("/v1/consolidate", { dry_run: dryRun }, about);
  }

  /** Returns a page of runs, newest first. */
  consolidations(options: ConsolidationsOptions = {}): Promise<Schemas["RunsAnswer"]> {
    const { signal, ...query } = options;
    return this.session.call<"listConsolidations">({ method: "GET", path: PATH, query, signal });
  }

  /** Returns one run, with all that it did. */
  async consolidation(
    id: string,
    options: Ending = {},
  ): Promise<Omit<Schemas["RunActionsAnswer"], "next_cursor">> {
    const path = `${PATH}/${segment(id)}`;
    const all: Schemas["ActionAnswer"][] = [];
    let cursor: string | undefined;
    for (;;) {
      const call: Call = { method: "GET", path, query: { limit: PAGE, cursor }, ...options };
      const found = await this.session.call<"getConsolidation">(call);
      const { next_cursor: next, actions, ...run } = found;
      all.push(...parseList(actions, "actions"));
      cursor = onward(cursor, next);
      if (cursor === undefined) return { ...run, actions: all };
    }
  }

  /** Takes back what a run did, and ends it; what was changed since is skipped, and counted. */
  async undoConsolidation(id: string, options: Ending = {}): Promise<Schemas["UndoAnswer"]> {
    const path = `${PATH}/${segment(id)}/undo`;
    let [undone, skipped] = [0, 0];
    const receipts: string[] = [];
    for (;;) {
      const asked = await this.session.noteRequest();
      const found = await this.change<"undoConsolidation">("POST", path, {}, options);
      const told = parseList(found.receipts, "receipts");
      // Brought back, and erased where a run had made it.
      for (const one of told)
        await this.session.noteReceipt(one, { op: ["state", "forget"], asked });
      receipts.push(...told);
      undone += found.undone;
      skipped += found.skipped;
      if (!found.more) return { ...found, undone, skipped, receipts };
      if (found.undone + found.skipped === 0) throw malformedAnswer("a part that did nothing");
    }
  }
}
