// Searches any number of namespaces: a request names at most 16, so they are asked in groups.
//
// - Few requests run at once: others of this key come between them.
// - The first group that fails is the last one asked. What was found until then is shown as a part.
// - Groups are scored one by one. Their scores mean nearly the same, and merge the groups.

import { NAMESPACES_MAX, type Access } from "./access.ts";
import type { Hit } from "./records.ts";

const AT_ONCE = 4;

/** What a search found, and in how much of what it was to look through. */
export interface Found {
  readonly hits: readonly Hit[];
  readonly isDegraded: boolean;
  readonly dropped: number;
  /** Namespaces that were searched. */
  readonly searched: number;
  readonly total: number;
  /** Why not all were searched; undefined if they were. */
  readonly failure: unknown;
}

export interface SearchOptions {
  readonly limit: number;
  readonly signal: AbortSignal;
  /** Tells how many namespaces were searched, of how many. */
  readonly progress: (searched: number, total: number) => void;
}

/**
 * Returns the best memories of all these namespaces.
 *
 * Throws what the first group threw if none was searched, and whenever it was aborted.
 */
export async function searchNamespaces(
  access: Access,
  query: string,
  namespaces: readonly string[],
  { limit, signal, progress }: SearchOptions,
): Promise<Found> {
  const total = namespaces.length;
  const groups: (readonly Hit[])[] = [];
  let [searched, next, dropped, isDegraded] = [0, 0, 0, false];
  let failures: unknown[] = [];
  const work = async (): Promise<void> => {
    while (next < total && failures.length === 0) {
      const group = namespaces.slice(next, next + NAMESPACES_MAX);
      next += group.length;
      try {
        const found = await access.recall(query, group, limit, signal);
        groups.push(found.results);
        dropped += found.dropped_count;
        isDegraded ||= found.degraded;
        searched += group.length;
        progress(searched, total);
      } catch (error) {
        failures = [...failures, error];
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  signal.throwIfAborted();
  if (failures.length > 0 && searched === 0) throw failures[0];
  return { hits: mergeHits(groups, limit), isDegraded, dropped, searched, total, failure: failures[0] };
}

/** Returns the best of several lists. Each keeps its order, which may put a copy behind lower scores. */
function mergeHits(groups: readonly (readonly Hit[])[], limit: number): Hit[] {
  const ranked = groups.flatMap((hits) => {
    let lowest = Infinity;
    return hits.map((hit) => ({ hit, rank: (lowest = Math.min(lowest, hit.score)) }));
  });
  ranked.sort((a, b) => b.rank - a.rank); // equal ones keep their order
  return ranked.slice(0, limit).map(({ hit }) => hit);
}
