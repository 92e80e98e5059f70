// Writes times, keys and numbers for people.

import type { Memory } from "./records.ts";
import { texts } from "./texts.ts";

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Returns a time in the zone of this browser. */
export function formatTime(time: string | number | null, none: string = texts.none): string {
  return time === null ? none : minute.format(new Date(time));
}

/** Returns the day of a time in the zone of this browser. */
export function formatDay(time: string | number): string {
  return day.format(new Date(time));
}

const utcDay = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });

/** Returns a day that is counted in UTC, such as 2026-05-04, for people. */
export function formatUtcDay(day: string): string {
  return utcDay.format(new Date(`${day}T00:00:00Z`));
}

/** Returns a key or an id, shortened so that people can tell it from others. */
export function shorten(id: string): string {
  return id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** Returns a share as a whole number of per cent, from 0 to 100. */
export function formatPercent(share: number): string {
  return `${Math.round(100 * Math.min(1, Math.max(0, share)))}%`;
}

/** Returns what is special about a memory, in words. */
export function marksOf(memory: Memory): string[] {
  return [
    memory.pinned && texts.pinned,
    memory.state !== "active" && (texts.states[memory.state] ?? memory.state),
    memory.review === "contradiction" && texts.contradiction,
    memory.stale && texts.stale,
    memory.status === "failed" && texts.failed,
  ].filter((mark): mark is string => typeof mark === "string");
}
