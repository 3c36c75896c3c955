// A range of days that the reader chooses, and what adds up in it: answers about windows that do not overlap.

import { h } from "./dom.js";
import { duration, localDay, many } from "./format.js";
import { begins, ends } from "./periods.js";

const DAY = 86400;
const SHIFT = 2 * 3600; // a local day may be an hour shorter or longer than 24 hours

/** Ranges by name: how many whole days, up to the newest one. */
export const RANGES = {
  day: { days: 1, label: "Day" },
  week: { days: 7, label: "7 days" },
  month: { days: 30, label: "30 days" },
  dates: { label: "Dates" },
};

const LEVEL = 0.95;
const MOST_EQUAL = 200; // draws; with more, the sum is normal in all that shows

/** P(S > x) of the sum S of n independent Laplace(1) draws: a difference of two Gamma(n) variables. */
function laplaceTail(x, n) {
  const weights = [];
  for (let r = 0, term = 2 ** -n, partial = 0; r < n; term *= (n + r) / (2 * (r + 1)), r++) {
    partial += term;
    weights.push(partial);
  }
  let total = 0;
  for (let power = 0, term = Math.exp(-x); power < n; power++, term *= x / power)
    total += weights[n - 1 - power] * term;
  return total;
}

const quantiles = new Map();

/** The two-sided quantile of the sum of n equal Laplace draws with total variance 1. */
export function quantile(n) {
  if (!quantiles.has(n)) {
    let low = 0,
      high = 1;
    while (laplaceTail(high, n) > (1 - LEVEL) / 2) high *= 2;
    for (let i = 0; i < 60; i++) {
      const middle = (low + high) / 2;
      if (laplaceTail(middle, n) > (1 - LEVEL) / 2) low = middle;
      else high = middle;
    }
    quantiles.set(n, high / Math.sqrt(2 * n));
  }
  return quantiles.get(n);
}

/**
 * Half the width of an interval around a sum of answers whose noise is independent: that of fewer equal Laplace draws
 * with the same variance and no smaller kurtosis, as algorithms/continual/noise_sum_tails.py has it.
 */
export function halfWidth(errors) {
  const squares = errors.map((error) => error * error);
  const variance = squares.reduce((sum, each) => sum + each, 0);
  if (!variance) return 0;
  const fourth = squares.reduce((sum, each) => sum + each * each, 0);
  const equal = Math.max(1, Math.min(MOST_EQUAL, Math.floor((variance * variance) / fourth + 1e-9)));
  return quantile(equal) * Math.sqrt(variance) + 0.5;
}

/** Whether an answer is a number about a whole window. */
const adds = ({ value, standard_error, window, end }) =>
  value !== null && standard_error !== null && window && (!end || Date.parse(end) >= Date.parse(window[1]));
const inside = (releases, { from, to }) =>
  releases.filter((release) => adds(release) && begins(release) >= from && ends(release) <= to);
const iso = (seconds) => new Date(seconds * 1000).toISOString();

/** The sum of the answers about a range, as one answer; null if there are none. `several` are series that add up. */
export function total(several, range) {
  const parts = several.flatMap((releases) => inside(releases, range));
  if (!parts.length) return null;
  const value = parts.reduce((sum, each) => sum + each.unclipped, 0),
    errors = parts.map((each) => each.standard_error),
    half = halfWidth(errors),
    length = ends(parts[0]) - begins(parts[0]),
    windows = new Set(parts.map(begins)).size,
    wanted = Number.isFinite(range.to - range.from) ? Math.round((range.to - range.from) / length) : windows;
  return {
    value,
    unclipped: value,
    interval: [value - half, value + half],
    level: LEVEL,
    window: [iso(Math.min(...parts.map(begins))), iso(Math.max(...parts.map(ends)))],
    whole: windows >= wanted,
    part: `answers for ${windows} of ${many(wanted, duration(length))}`,
    errors,
  };
}

/** How much more one sum is than another: "up" or "down" if noise alone could not make it, and by how much. */
export function change(now, before) {
  const by = now.value - before.value,
    half = halfWidth([...now.errors, ...before.errors]);
  const ratio = before.value > 0 ? now.value / before.value : null;
  return { by, half, sure: by > half ? "up" : by < -half ? "down" : "", ratio };
}

/** Days that answers are about: [begin, end] of each, in order. */
export const days = (several) =>
  [...new Map(several.flat().map((release) => [begins(release), ends(release)]))]
    .filter(([begin, end]) => Math.abs(end - begin - DAY) <= SHIFT)
    .sort(([a], [b]) => a - b);

/** The seconds from and to of a choice, at the beginnings of days; null without any whole day in it. */
export function rangeOf({ range, from, to }, known) {
  if (range === "dates" && from && to) {
    const chosen = known.filter(([begin]) => localDay(begin) >= from && localDay(begin) <= to);
    return chosen.length ? { from: chosen[0][0], to: chosen.at(-1)[1] } : null;
  }
  if (!known.length) return null;
  const end = known.at(-1)[1],
    begin = end - (RANGES[range].days ?? RANGES.week.days) * DAY;
  const nearest = known.find(([first]) => Math.abs(first - begin) <= SHIFT); // where the clocks were changed
  return { from: nearest?.[0] ?? begin, to: end };
}

/** The range before, of as many days. */
export function before({ from, to }, known) {
  const begin = from - (to - from);
  return { from: known.find(([first]) => Math.abs(first - begin) <= SHIFT)?.[0] ?? begin, to: from };
}

/** Radio buttons for the ranges and two dates; `chosen(choice)` hears of a change. */
export function rangePicker(chosen) {
  let choice = { range: "week", from: "", to: "" };
  const choose = (changes) => {
    choice = { ...choice, ...changes };
    chosen(choice);
  };
  const inputs = Object.entries(RANGES).map(([value, { label }]) => [
    h("input", { type: "radio", name: "range", id: `range-${value}`, value, onchange: () => choose({ range: value }) }),
    h("label", { for: `range-${value}` }, label),
  ]);
  const date = (name, words) =>
    h("input", { type: "date", "aria-label": words, onchange: (event) => choose({ [name]: event.target.value }) });
  const dates = { from: date("from", "First day"), to: date("to", "Last day") };
  const between = h("span", { class: "dates" }, dates.from, h("span", null, "to"), dates.to);
  const node = h(
    "div",
    { class: "ranges" },
    h("fieldset", { class: "picker" }, h("legend", { class: "unseen" }, "Days"), inputs),
    between,
  );
  const update = (now) => {
    choice = now;
    for (const [input] of inputs) input.checked = input.value === now.range;
    between.hidden = now.range !== "dates";
    for (const name of ["from", "to"]) if (dates[name].value !== now[name]) dates[name].value = now[name];
  };
  return { node, update };
}
