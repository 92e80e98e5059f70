// Days, weeks and months in the zone of this browser.

import { formatDay } from "./format.ts";

export type Unit = "day" | "week" | "month";

const month = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });

/** Returns the first moment of the day, week (from Monday) or month of a time, in this zone. */
export function periodOf(time: number, unit: Unit): number {
  const moment = new Date(time);
  moment.setHours(0, 0, 0, 0);
  if (unit === "week") moment.setDate(moment.getDate() - ((moment.getDay() + 6) % 7));
  if (unit === "month") moment.setDate(1);
  return moment.getTime();
}

/** Returns the first moment of the period after the one that begins then. */
export function nextPeriod(start: number, unit: Unit): number {
  const moment = new Date(start);
  if (unit === "day") moment.setDate(moment.getDate() + 1);
  if (unit === "week") moment.setDate(moment.getDate() + 7);
  if (unit === "month") moment.setMonth(moment.getMonth() + 1);
  return moment.getTime();
}

/** Returns the name of the period that begins then, for people. */
export function namePeriod(start: number, unit: Unit): string {
  if (unit === "month") return month.format(start);
  if (unit === "day") return formatDay(start);
  const end = new Date(nextPeriod(start, "week"));
  end.setDate(end.getDate() - 1);
  return `${formatDay(start)} – ${formatDay(end.getTime())}`;
}

/** Returns the first moments of the last periods, the current one last. */
export function lastPeriods(unit: Unit, count: number, now: number): number[] {
  const starts = [periodOf(now, unit)];
  while (starts.length < count) starts.unshift(periodOf(starts[0]! - 1, unit));
  return starts;
}
