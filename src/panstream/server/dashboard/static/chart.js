// A history with its 95% band, as SVG: its labels are text, so they can be read, selected and tested.

import { h, s, say } from "./dom.js";
import { answer, moment, windowed } from "./format.js";
import { begins, ends } from "./periods.js";
import { drawable, reach, thinned } from "./pictures.js";
import { timeTicks, valueTicks } from "./ticks.js";

const HEIGHT = 220,
  TOP = 10,
  BELOW = 26,
  RIGHT = 14,
  LETTER = 7.2; // pixels; the widest digit of the labels' type
const MARKED = 40; // above so many answers, dots would hide the line
const MOST = 600; // points that are drawn; more than pixels would not be seen

const width = (label) => label.length * LETTER;

/** Where answers stand: a whole window at its beginning, all else at its end; by number where times do not rise. */
function places(releases, window) {
  const times = releases.map(window ? begins : ends);
  const numbered = times.some((at, i) => i && at <= times[i - 1]);
  return { numbered, xs: numbered ? releases.map((release) => release.number) : times };
}

/** A chart that follows its answers and its width. Arrow keys and the pointer read single answers out. */
export class History {
  #releases = [];
  #earlier = [];
  #window = 0; // seconds, where every answer is about a window of its own
  #at = null;

  constructor(label) {
    this.label = label;
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.drawing = h("div", {
      class: "plot",
      role: "img",
      tabindex: "0",
      "aria-label": label,
      onpointermove: (event) => this.#point(event),
      onpointerleave: () => this.#read(null),
      onkeydown: (event) => this.#key(event),
      onblur: () => this.#read(null),
    });
    this.node = h("div", { class: "history" }, this.drawing, this.readout);
    new ResizeObserver(() => this.#draw()).observe(this.drawing);
  }

  /** Show answers; `earlier` are those of the period before with the seconds that they are moved by. */
  update(releases, { window = 0, earlier = [], shift = 0 } = {}) {
    this.#releases = thinned(releases.filter(drawable), MOST);
    this.#earlier = thinned(
      earlier.filter((release) => release.value !== null),
      MOST,
    );
    this.#window = window;
    this.shift = shift;
    const last = this.#releases.at(-1);
    const words = last ? `: ${this.#releases.length} answers, the last ${answer(last).shown}. A table follows.` : "";
    this.drawing.setAttribute("aria-label", this.label + words);
    this.#draw();
  }

  #draw() {
    const wide = this.drawing.clientWidth,
      releases = this.#releases;
    if (!wide || !releases.length) return this.drawing.replaceChildren();
    const { numbered, xs } = places(releases, this.#window);
    const before = numbered ? [] : this.#earlier;
    const values = [
      ...releases.flatMap((each) => [...reach(each), each.value ?? reach(each)[0]]),
      ...before.map((each) => each.value),
    ];
    const [low, high] = padded(Math.min(...values), Math.max(...values));
    const marks = valueTicks(low, high, 5);
    const left = Math.max(...marks.map(({ label }) => width(label))) + 10;
    const [first, last] = xs.length > 1 ? [xs[0], xs.at(-1)] : [xs[0] - 1, xs[0] + 1];
    const x = (at) => left + ((wide - left - RIGHT) * (at - first)) / (last - first);
    const y = (value) => HEIGHT - BELOW - ((HEIGHT - BELOW - TOP) * (value - low)) / (high - low);
    const room = (label) => ((width(label) + 18) * (last - first)) / (wide - left - RIGHT);
    const below = numbered
      ? numbers(first, last, room)
      : timeTicks(first, last, room, { least: this.#window, utc: this.#window > 0 });
    const earlier = before.map((each) => [(this.#window ? begins : ends)(each) + this.shift, each.value]);
    const points = releases.map((each, i) => [x(xs[i]), each.value === null ? null : y(each.value)]);
    this.points = points;
    this.drawing.replaceChildren(
      s(
        "svg",
        { width: wide, height: HEIGHT, viewBox: `0 0 ${wide} ${HEIGHT}`, "aria-hidden": "true" },
        marks.map(({ at, label }) => [
          s("line", { class: "grid", x1: left, x2: wide - RIGHT, y1: y(at), y2: y(at) }),
          s("text", { class: "axis", x: left - 8, y: y(at) + 4, "text-anchor": "end" }, label),
        ]),
        below.map(({ at, label }) => text(x(at), label, wide)),
        s("path", { class: "band", d: band(releases, xs, x, y) }),
        earlier.length > 1 &&
          s("path", {
            class: "line earlier",
            d: line(earlier.filter(([at]) => at >= first && at <= last).map(([at, value]) => [x(at), y(value)])),
          }),
        s("path", { class: "line", d: line(points) }),
        points.length <= MARKED &&
          points.filter(([, at]) => at !== null).map(([cx, cy]) => s("circle", { class: "point", cx, cy, r: 3 })),
        (this.rule = s("line", { class: "rule", y1: TOP, y2: HEIGHT - BELOW, visibility: "hidden" })),
        (this.dot = s("circle", { class: "point", r: 4.5, visibility: "hidden" })),
      ),
    );
    if (this.#at !== null) this.#read(Math.min(this.#at, releases.length - 1));
  }

  #point(event) {
    const at = event.clientX - this.drawing.getBoundingClientRect().left;
    let best = null;
    this.points?.forEach(([x], i) => {
      if (best === null || Math.abs(x - at) < Math.abs(this.points[best][0] - at)) best = i;
    });
    this.#read(best);
  }

  #key(event) {
    const last = this.#releases.length - 1,
      now = this.#at ?? last;
    const wanted = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    this.#read(Math.max(0, Math.min(last, this.#at === null && event.key.startsWith("Arrow") ? last : wanted)));
  }

  #read(at) {
    this.#at = at;
    const release = at === null ? undefined : this.#releases[at];
    for (const mark of [this.rule, this.dot]) mark?.setAttribute("visibility", release ? "visible" : "hidden");
    say(this.readout, release ? `${about(release)}   ${answer(release).value}   ${answer(release).range}` : "");
    if (!release) return;
    const [x, y] = this.points[at];
    for (const [name, value] of [
      ["x1", x],
      ["x2", x],
    ])
      this.rule.setAttribute(name, value);
    this.dot.setAttribute("cx", x);
    if (y === null) this.dot.setAttribute("visibility", "hidden");
    else this.dot.setAttribute("cy", y);
  }
}

/** What time an answer is about, or when it was published. */
export const about = (release) =>
  [release.window ? windowed(release.window) : moment(release.end ?? release.time), ...seen(release)].join(", ");

/** Which rows it has not seen, if it was asked later than the stream began, or not all the time. */
export const seen = (release) => [
  ...(release.since ? [`since ${moment(release.since)}`] : []),
  ...(release.gaps ?? []).map(([begin, end]) => `without ${moment(begin)} to ${moment(end)}`),
];

function padded(low, high) {
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

function numbers(first, last, room) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((each) => each >= room(`#${last}`)) ?? last;
  const marks = [];
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) marks.push({ at, label: `#${at}` });
  return marks;
}

/** A label below the picture, moved inwards where it would leave it. */
function text(x, label, wide) {
  const half = width(label) / 2;
  return s(
    "text",
    { class: "axis", x: Math.max(half, Math.min(wide - half, x)), y: HEIGHT - 6, "text-anchor": "middle" },
    label,
  );
}

function line(points) {
  let path = "",
    open = false;
  for (const [x, y] of points) {
    if (y !== null) path += `${open ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`;
    open = y !== null;
  }
  return path || "M0,0";
}

function band(releases, xs, x, y) {
  const side = (end) => releases.map((each, i) => [x(xs[i]), y(reach(each)[end])]);
  return `${line([...side(1), ...side(0).reverse()])}Z`;
}
