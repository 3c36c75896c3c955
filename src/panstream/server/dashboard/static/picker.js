// The period that all questions are shown for. It stands in the address, so that a link keeps it.

import { h } from "./dom.js";
import { PERIODS } from "./periods.js";

/** The period and the page that an address names: `#/question/visits?period=week`. */
export function parse(hash) {
  const [path, rest] = hash.replace(/^#\/?/, "").split("?");
  const [page, ...name] = path.split("/");
  const period = new URLSearchParams(rest ?? "").get("period");
  return { page, name: decodeURIComponent(name.join("/")), period: Object.hasOwn(PERIODS, period) ? period : "all" };
}

/** The address of a page, for the period that is chosen. */
export function address(page, period, name) {
  const path = name === undefined ? page : `${page}/${encodeURIComponent(name)}`;
  return `#/${path}${period === "all" ? "" : `?period=${period}`}`;
}

/** Radio buttons for the periods; `chosen(period)` hears of a change. */
export function picker(chosen) {
  const inputs = Object.entries(PERIODS).map(([value, { label }]) => [
    h("input", { type: "radio", name: "period", id: `period-${value}`, value, onchange: () => chosen(value) }),
    h("label", { for: `period-${value}` }, label),
  ]);
  const node = h("fieldset", { class: "picker" }, h("legend", { class: "unseen" }, "Period"), inputs);
  const update = (period) => {
    for (const [input] of inputs) input.checked = input.value === period;
  };
  return { node, update };
}
