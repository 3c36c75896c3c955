// Pictures of who came back: the share that returns after 1, 2, … windows; new and returning users by window.

import { h, s } from "./dom.js";
import { number } from "./format.js";
import { valueTicks } from "./ticks.js";

const HEIGHT = 200,
  TOP = 18,
  BELOW = 26,
  RIGHT = 14,
  LETTER = 7.2; // pixels of a digit
const WORDY = 130; // pixels of a range in words
const NARROW = 120; // pixels: not laid out yet
const ALL = 0.9; // a range of shares this wide says nothing
let patterns = 0;

const says = (release) => release && release.interval[1] - release.interval[0] < ALL;
const percent = (value) => `${number(100 * value, 1)}%`;

/** A share, and its range. */
export const share = ({ value, interval: [low, high], too_uncertain: unsure }) => [
  unsure ? "Too uncertain to say" : percent(value),
  `${percent(low)} to ${percent(high)}`,
];

/** A picture that is drawn again when its width changes; its label says in words what it shows. */
class Picture {
  #draw = () => [];

  constructor() {
    this.node = h("div", { class: "plot cohort-plot", role: "img" });
    new ResizeObserver(() => this.#fill()).observe(this.node);
  }

  show(label, draw) {
    this.node.setAttribute("aria-label", label);
    this.#draw = draw;
    this.#fill();
  }

  #fill() {
    const wide = this.node.clientWidth;
    if (wide < NARROW) return;
    const size = { width: wide, height: HEIGHT, viewBox: `0 0 ${wide} ${HEIGHT}` };
    this.node.replaceChildren(s("svg", { ...size, "aria-hidden": "true" }, this.#draw(wide)));
  }
}

/** The scale of a picture: marks on the left, and where a value stands. */
function scale(wide, high, label) {
  const marks = valueTicks(0, high, 4).map(({ at, label: text }) => ({ at, text: label(at || 0, text) }));
  const left = Math.max(...marks.map(({ text }) => text.length)) * LETTER + 16;
  const y = (value) => HEIGHT - BELOW - ((HEIGHT - BELOW - TOP) * value) / high;
  const lines = marks.map(({ at, text }) => [
    s("line", { class: "grid", x1: left, x2: wide - RIGHT, y1: y(at), y2: y(at) }),
    s("text", { class: "axis", x: left - 8, y: y(at) + 4, "text-anchor": "end" }, text),
  ]);
  return { left, y, lines };
}

/** A number beside its point; on the left of it where the right has no space. */
function figure(x, y, text, wide, kind = "figure-label") {
  const fits = x + 9 + text.length * LETTER <= wide;
  return s("text", { class: kind, x: x + (fits ? 9 : -9), y: y - 7, "text-anchor": fits ? "start" : "end" }, text);
}

const whisker = (x, y, [low, high]) =>
  s("path", { class: "whisker", d: `M${x - 4},${y(high)}h8m-4,0V${y(low)}m-4,0h8` });

/** The share of users who return, over all cohorts, by the number of windows: a line in its band. */
export class Curve extends Picture {
  update(rates, lags) {
    const known = lags.map((lag) => rates.get(lag)).filter(says);
    this.node.hidden = !known.length;
    const words = known.map((release) => `${release.lag} later ${share(release).join(", 95%: ")}`).join("; ");
    const label = `Share of users who return, by windows: ${words}. The row “Share of all” has the numbers.`;
    this.show(label, (wide) => {
      const high = Math.min(1, 1.1 * Math.max(...known.map(({ interval }) => interval[1])));
      const { left, y, lines } = scale(wide, high, (at) => percent(at));
      const step = (wide - left - RIGHT) / lags.length;
      const x = ({ lag }) => left + step * (lag - 0.5);
      const side = (end) => known.map((release) => `${x(release).toFixed(1)},${y(release.interval[end]).toFixed(1)}`);
      const certain = known.filter(({ too_uncertain: unsure }) => !unsure);
      return [
        lines,
        known.length > 1 &&
          s("path", { class: "band", d: `M${side(1).join("L")}L${side(0).reverse().join("L")}Z` }),
        certain.length > 1 &&
          s("path", { class: "line", d: `M${certain.map((each) => `${x(each)},${y(each.value)}`).join("L")}` }),
        known.map((each) => whisker(x(each), y, each.interval)),
        certain.map((each) => [
          s("circle", { class: "point", cx: x(each), cy: y(each.value), r: 4 }),
          figure(x(each), y(each.value), percent(each.value), wide),
        ]),
        step > WORDY &&
          known
            .filter(({ too_uncertain: unsure }) => unsure)
            .map((each) => figure(x(each), y(each.interval[1]), share(each)[1], wide, "range-label")),
        lags.map((lag) => {
          const label = lag === 1 ? "1 later" : lag;
          return s("text", { class: "axis", x: x({ lag }), y: HEIGHT - 6, "text-anchor": "middle" }, label);
        }),
      ];
    });
  }
}

/** New and returning users of each window, one on the other; hatched where only the range is certain. */
export class Weeks extends Picture {
  update(rows, back) {
    const bars = rows.map(({ window, users, new: fresh }, i) => ({
      window,
      users,
      fresh,
      again: i ? back.get(`${rows[i - 1].window[0]} 1`) : undefined,
    }));
    const known = bars.filter(({ users }) => users);
    this.node.hidden = !known.length;
    const last = known.at(-1);
    const numbers = last?.again && `${people(last.again)} returned and ${people(last.fresh)} were new`;
    const of = numbers ? `; in the last one, ${numbers}` : "";
    this.show(`New and returning users of ${known.length} windows${of}. A table follows.`, (wide) => {
      const high = 1.05 * Math.max(...known.map(({ users }) => users.interval[1]));
      const { left, y, lines } = scale(wide, high, (_, text) => text);
      const step = (wide - left - RIGHT) / bars.length;
      const hatch = `hatch-${patterns++}`;
      const every = Math.ceil((7 * LETTER) / step);
      const bar = (x, kind, from, to) =>
        s("rect", { class: kind, x, y: y(to), width: 0.66 * step, height: Math.max(y(from) - y(to), 0) });
      return [
        s(
          "pattern",
          { id: hatch, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          s("rect", { class: "hatching", width: 2, height: 7 }),
        ),
        lines,
        bars.map(({ window, users, fresh, again }, i) => {
          const x = left + step * (i + 0.17);
          const below = again ? Math.min(Math.max(again.value, 0), users?.value ?? Infinity) : 0;
          const unsure = (again ?? users)?.too_uncertain || fresh?.too_uncertain;
          return [
            users && bar(x, again ? "fresh" : "all", below, users.value),
            again && bar(x, "again", 0, below),
            unsure &&
              again &&
              s("rect", {
                x,
                y: y(again.interval[1]),
                width: 0.66 * step,
                height: Math.max(y(again.interval[0]) - y(again.interval[1]), 0),
                fill: `url(#${hatch})`,
              }),
            again && whisker(x + 0.22 * step, y, again.interval),
            users && whisker(x + 0.44 * step, y, users.interval),
            (bars.length - 1 - i) % every === 0 &&
              s("text", { class: "axis", x: x + 0.33 * step, y: HEIGHT - 6, "text-anchor": "middle" }, day(window)),
          ];
        }),
      ];
    });
  }
}

const people = (release) =>
  release?.too_uncertain ? "too uncertain to say" : number(Math.max(release?.value ?? 0, 0), 10);

const day = ([from]) => new Date(from).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** What the colours of `Weeks` mean. */
export const legend = () =>
  h(
    "ul",
    { class: "cohort-legend" },
    h("li", null, h("i", { class: "again" }), "also came in the window before"),
    h("li", null, h("i", { class: "fresh" }), "new: did not come in it"),
    h("li", null, h("i", { class: "all" }), "not known"),
    h("li", null, h("i", { class: "hatched" }), "only the interval is certain"),
  );
