// Periods: which part of the history is shown, and what may be said of it and of the one before.
//
// Answers have intervals of 95%. What is made of two of them holds with at least 90%, of three with at least 85%,
// however they depend on each other: the chances to be wrong add up at most.

import { isCalendar } from "./format.js";

/** Periods by name: seconds, and what the period before and its end are called. */
export const PERIODS = {
  hour: { seconds: 3600, label: "Hour", before: "the hour before", earlier: "an hour earlier" },
  day: { seconds: 86400, label: "Day", before: "the day before", earlier: "a day earlier" },
  week: { seconds: 7 * 86400, label: "Week", before: "the week before", earlier: "a week earlier" },
  month: { seconds: 30 * 86400, label: "30 days", before: "the 30 days before", earlier: "30 days earlier" },
  all: { seconds: Infinity, label: "All", before: "the answer before" },
};

const seconds = (text) => Date.parse(text) / 1000;

/** When what an answer is about begins and ends, in seconds; a total begins with the stream. */
export const begins = (release) => (release.window ? seconds(release.window[0]) : -Infinity);
export const ends = (release) => seconds(release.end ?? release.window?.[1] ?? release.time);

/** The end of a question's periods: the newest time that its answers are about, since a stream may replay old days. */
export const newest = (query, store) =>
  Math.max(
    ...query.series.map((name) => store.series.get(name)?.at(-1)).map((last) => (last ? ends(last) : -Infinity)),
  );

/** The answers about times of a period that ends at `end`. */
export const within = (releases, period, end) => releases.filter((each) => ends(each) > end - PERIODS[period].seconds);

/** Whether an answer is a window's last one, so that the window is whole. */
const whole = (release) => !release.end || ends(release) >= seconds(release.window[1]);

const latest = (releases, until) => releases.findLast((release) => ends(release) <= until && release.value !== null);

const least = (...releases) => 1 - releases.reduce((sum, release) => sum + 1 - release.level, 0);

/** The difference of two answers, or an answer by itself, per second if `time` is given; `unclipped` is for sums. */
function part(upper, lower, time = 1) {
  const [low, high] = upper.interval,
    [below, above] = lower ? lower.interval : [0, 0];
  const known = (end, other, open) => (end === null || other === null ? open : (end - other) / time);
  const unclipped = (upper.unclipped - (lower?.unclipped ?? 0)) / time;
  return {
    value: lower ? unclipped : upper.value / time,
    unclipped,
    low: known(low, above, -Infinity),
    high: known(high, below, Infinity),
  };
}

/** Of a total that goes on: how much came in a period, per second; null if no answers stand at its ends. */
function growth(releases, from, to) {
  const last = latest(releases, to),
    first = latest(releases, from);
  if (!last || !first || ends(last) <= ends(first)) return null;
  const time = ends(last) - ends(first);
  return { ...part(last, first, time), made: [first, last], from: ends(first), to: ends(last) };
}

/** Of a question whose answers add up: how many per second, and for which time. */
export function rate(query, additive, releases, period, end) {
  if (!additive) return null;
  if (query.window === null) {
    const found = Number.isFinite(PERIODS[period].seconds)
      ? growth(releases, end - PERIODS[period].seconds, end)
      : null;
    return found && { ...found, level: least(...found.made) };
  }
  const last = releases.findLast((release) => whole(release) && release.value !== null);
  if (!last) return null;
  return { ...part(last, null, ends(last) - begins(last)), level: last.level, from: begins(last), to: ends(last) };
}

/** The newest figure beside that of the period before: both, the change, and how sure it is; null if there is none. */
export function comparison(query, additive, releases, period, end) {
  const length = PERIODS[period].seconds;
  if (query.window !== null) {
    const now = releases.findLast((release) => whole(release) && release.value !== null);
    const back = now && Math.max(1, Number.isFinite(length) ? Math.round(length / query.window) : 1) * query.window;
    const since = now && (isCalendar(query.window) ? null : begins(now) - back);
    const isBefore = (each) => (since === null ? ends(each) === begins(now) : begins(each) === since);
    const before = now && releases.findLast((each) => whole(each) && isBefore(each));
    return before && before.value !== null ? compared(part(now), part(before), [now, before], begins(before)) : null;
  }
  if (additive && Number.isFinite(length)) {
    const now = growth(releases, end - length, end);
    const before = now && growth(releases, now.from - length, now.from);
    return before && compared(now, before, new Set([...now.made, ...before.made]), before.from);
  }
  const now = latest(releases, end);
  const before =
    now &&
    (Number.isFinite(length)
      ? latest(releases, ends(now) - length)
      : releases.findLast((release) => release.number < now.number && release.value !== null));
  return before && before !== now ? compared(part(now), part(before), [now, before], ends(before)) : null;
}

function compared(now, before, made, since) {
  const low = now.low - before.high,
    high = now.high - before.low;
  const sure = low > 0 ? "up" : high < 0 ? "down" : "";
  const change = { value: now.unclipped - before.unclipped, low, high };
  // A quotient has ends only where what it is divided by is surely positive.
  const ratio =
    before.low > 0 && before.value > 0 && now.low >= 0
      ? { value: now.value / before.value, low: now.low / before.high, high: now.high / before.low }
      : null;
  return { now, before, change, ratio, sure, level: least(...made), since };
}
