// What changed since the period before, in words; nothing is called a change that noise alone could make.

import { h } from "./dom.js";
import { duration, isCalendar, moment, number, percent, perTime } from "./format.js";
import { comparison, PERIODS, rate } from "./periods.js";

/** Against what the newest figure is held. */
function than(query, additive, period, since) {
  if (query.window !== null) {
    return period === "all" || isCalendar(query.window) || PERIODS[period].seconds <= query.window
      ? `the ${duration(query.window)} before`
      : PERIODS[period].earlier;
  }
  return additive && period !== "all" ? PERIODS[period].before : `the answer of ${moment(since)}`;
}

const SIGNS = { up: "▲", down: "▼", "": "≈" };

function change(found) {
  if (found.ratio) return percent(found.ratio.value - 1, true);
  return `${found.change.value > 0 ? "+" : ""}${number(found.change.value)}`;
}

/** One short line: the change if it is sure, or that it is not; null if there is nothing to compare with. */
export function short(query, additive, releases, period, end) {
  const found = comparison(query, additive, releases, period, end);
  if (!found) return null;
  const text = found.sure ? change(found) : h("span", { class: "than" }, "no clear change");
  const from = found.sure && h("span", { class: "than" }, ` from ${than(query, additive, period, found.since)}`);
  return h(
    "span",
    { class: "trend", "data-sure": found.sure },
    h("span", { "aria-hidden": "true" }, `${SIGNS[found.sure]} `),
    text,
    from,
  );
}

/** The change between two sums, as a short line. */
export function changed({ by, ratio, sure }, since) {
  const amount = ratio === null ? `${by > 0 ? "+" : ""}${number(by)}` : percent(ratio - 1, true);
  return h(
    "span",
    { class: "trend", "data-sure": sure },
    h("span", { "aria-hidden": "true" }, `${SIGNS[sure]} `),
    sure ? amount : "",
    h("span", { class: "than" }, sure ? ` from ${since}` : `no clear change from ${since}`),
  );
}

/** Lines with their intervals: how many per time, and the comparison. */
export function long(query, additive, releases, period, end) {
  const lines = [],
    now = rate(query, additive, releases, period, end);
  if (now) {
    const said = perTime(now);
    const when =
      query.window !== null
        ? `over the last whole ${duration(query.window)}`
        : `from ${moment(now.from)} to ${moment(now.to)}`;
    lines.push(h("p", { class: "rate" }, h("b", null, said.value), ` ${when} (${percent(now.level)}: ${said.range})`));
  }
  const found = comparison(query, additive, releases, period, end);
  if (found) {
    const { ratio, change: by } = found;
    const range = ratio
      ? `${percent(ratio.low - 1, true)} to ${percent(ratio.high - 1, true)}`
      : `${number(by.low)} to ${number(by.high)}`;
    const word = { up: "Up", down: "Down", "": "No clear change" }[found.sure];
    const amount = found.sure ? ` ${change(found).replace(/^[+−]/, "")}` : "";
    lines.push(
      h(
        "p",
        { class: "trend", "data-sure": found.sure },
        h("b", null, h("span", { "aria-hidden": "true" }, `${SIGNS[found.sure]} `), `${word}${amount}`),
        ` from ${than(query, additive, period, found.since)} (${percent(found.level)}: ${range})`,
      ),
    );
  } else if (period !== "all")
    lines.push(h("p", { class: "trend" }, `No answers of ${PERIODS[period].before} to compare with.`));
  return lines;
}
