// The card of the page "Site" about visitors who came back: the newest share, and the share by the number of weeks.

import { h } from "./dom.js";
import { first } from "./first.js";
import { windowed } from "./format.js";
import { lagsOf, read } from "./cohorts.js";
import { ends } from "./periods.js";
import { Curve, share } from "./returning.js";

/** The name of the question that `panstream web --retention` asks. */
export const RETURNING = "returning visitors";

const over = (rows) => `over ${rows.length} weeks, the last ${windowed(rows.at(-1).window)}`;

export class Returning {
  constructor() {
    this.curve = new Curve();
  }

  /** What the card shows of the answers up to the end of a range. */
  show(query, store, range, link) {
    const { rows, rates } = read(query, store, query.series[0], (release) => ends(release) <= range.to);
    const rate = rates.get(1);
    this.curve.update(rates, lagsOf(query));
    const [value, reach] = rate ? share(rate) : ["–", ""];
    return [
      link(query, "Visitors who come again"),
      h("p", { class: "chip" }, rows.length ? over(rows) : first(query)),
      h("p", { class: rate?.too_uncertain ? "figure words" : "figure" }, value),
      h("p", { class: "range" }, reach ? `95%: ${reach}` : ""),
      h("p", { class: "small" }, "of a week's visitors return the week after. After 1, 2, … weeks:"),
      this.curve.node,
    ];
  }
}
