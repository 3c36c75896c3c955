// History with its 95% band, drawn by the vendored uPlot; and one interval as a small picture.

import { colour, h, s } from "./dom.js";
import { answer, moment, number } from "./format.js";

const HEIGHT = 210;

/** Whether there is something to draw: a value, or an interval without one. */
export const drawable = (release) => release.value !== null || Boolean(release.statement);

function columns(releases) {
  const shown = releases.filter(drawable);
  const ends = (at) => shown.map((release) => release.interval[at] ?? release.value);
  const time = (release) => Date.parse(release.until ?? release.window?.[1] ?? release.time) / 1000;
  const times = shown.map(time);
  // Answers of one second would lie on top of each other: then their numbers are the axis.
  const numbered = times.some((at, i) => i && at <= times[i - 1]);
  return { numbered, data: [numbered ? shown.map((release) => release.number) : times, shown.map((r) => r.value), ends(0), ends(1)] };
}

function options(width, numbered, readout) {
  const font = "12px Inter, system-ui, sans-serif";
  const axis = { stroke: colour("--soft"), font, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const accent = colour("--accent"), band = colour("--band");
  const edge = { stroke: "transparent", points: { show: false }, width: 0 };
  return {
    width, height: HEIGHT, padding: [12, 28, 0, 0], legend: { show: false },
    scales: { x: { time: !numbered }, y: { range: (_, low, high) => reach(low, high) } },
    axes: [
      { ...axis, grid: { show: false }, size: 30, gap: 8, space: 70, ...(numbered ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], values: (_, at) => at.map((n) => `#${n}`) } : { values: clock }) },
      { ...axis, size: 58, space: 36, values: (_, at, axis, space, step) => at.map((value) => number(value, step * 9)) },
    ],
    series: [{}, { stroke: accent, width: 2, points: { show: true, size: 6, fill: accent, stroke: accent } }, edge, edge],
    bands: [{ series: [3, 2], fill: band }],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 9, fill: accent } },
    hooks: { setCursor: [(plot) => readout(plot.cursor.idx)] },
  };
}

function reach(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.12;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

function clock(plot, at) {
  const span = (plot.scales.x.max ?? 0) - (plot.scales.x.min ?? 0);
  const style = span > 3 * 86400 ? { day: "numeric", month: "short" }
    : span > 180 ? { hour: "2-digit", minute: "2-digit" }
    : { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  return at.map((seconds) => (Math.abs(seconds % 1) > 1e-6 ? "" : new Date(seconds * 1000).toLocaleString("en-GB", style)));
}

/** A chart that follows its releases, its width and the theme. */
export class History {
  #plot = null;
  #releases = [];
  #numbered = null;

  constructor(label) {
    this.readout = h("p", { class: "readout", "aria-hidden": "true" });
    this.canvas = h("div", { class: "plot", role: "img", "aria-label": label });
    this.node = h("div", { class: "history" }, this.canvas, this.readout);
    this.label = label;
    new ResizeObserver(() => this.#resize()).observe(this.canvas);
    document.addEventListener("themechange", () => this.#rebuild());
  }

  update(releases) {
    this.#releases = releases.filter(drawable);
    const { numbered, data } = columns(releases);
    if (!this.#plot || numbered !== this.#numbered) this.#rebuild();
    else this.#plot.setData(data);
    const last = this.#releases.at(-1);
    if (last) this.canvas.setAttribute("aria-label", `${this.label}: ${this.#releases.length} answers, the last ${answer(last).value}. A table follows.`);
  }

  #rebuild() {
    this.#plot?.destroy();
    this.#plot = null;
    const width = this.canvas.clientWidth;
    if (!width || !this.#releases.length) return;
    const { numbered, data } = columns(this.#releases);
    this.#numbered = numbered;
    this.#plot = new uPlot(options(width, numbered, (at) => this.#read(at)), data, this.canvas);
  }

  #resize() {
    if (!this.#plot) this.#rebuild();
    else if (this.canvas.clientWidth) this.#plot.setSize({ width: this.canvas.clientWidth, height: HEIGHT });
  }

  #read(at) {
    const release = this.#releases[at ?? -1];
    const said = release && answer(release);
    this.readout.textContent = release ? `${moment(release.until ?? release.time)}   ${said.value}   ${release.statement ? `95%${said.more ? `: ${said.more}` : ""}` : `95%: ${said.low} to ${said.high}`}` : "";
  }
}

/** One value with its interval on a common scale, as a picture. */
export function interval(release, [low, high]) {
  const at = (value) => 4 + (192 * (value - low)) / (high - low || 1);
  const [from, to] = release.interval.map((end, i) => at(end ?? [low, high][i]));
  return s("svg", { class: "interval", viewBox: "0 0 200 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "track", x: 0, y: 6, width: 200, height: 2, rx: 1 }),
    s("rect", { class: "span", x: from, y: 4, width: Math.max(to - from, 1), height: 6, rx: 3 }),
    release.value !== null && s("rect", { class: "value", x: at(release.value) - 1.5, y: 1, width: 3, height: 12, rx: 1.5 }));
}
