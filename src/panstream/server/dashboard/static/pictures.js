// Small pictures without axes: a history as a line in its band, and one answer as a bar with its interval.

import { h, s } from "./dom.js";
import { ends } from "./periods.js";

/** Whether there is something to draw: a value, or an interval without one. */
export const drawable = (release) => release.value !== null || Boolean(release.description);

const middle = ({ value, interval: [low, high] }) =>
  value ?? (low !== null && high !== null ? (low + high) / 2 : (low ?? high));

/** The ends of what is drawn of an answer: an open end is not drawn. */
export const reach = (release) => release.interval.map((end) => end ?? middle(release));

/** The smallest and largest value that pictures of these answers need, zero included. */
export function span(releases) {
  const all = releases.filter(drawable).flatMap((release) => [...reach(release), middle(release)]);
  return [Math.min(0, ...all), Math.max(0, ...all)];
}

/** At most `most` answers, evenly chosen, the last one always. */
export function thinned(releases, most) {
  const step = Math.ceil(releases.length / most);
  return step <= 1 ? releases : releases.filter((_, at) => (releases.length - 1 - at) % step === 0);
}

const path = (points) => `M${points.map((point) => point.map((each) => each.toFixed(1)).join(",")).join("L")}`;

/** A history as a small line in its band; it says nothing that the text beside it does not. */
export function spark(releases) {
  const shown = thinned(releases.filter(drawable), 120);
  if (shown.length < 2) return h("span", { class: "spark" });
  const times = shown.map(ends),
    numbered = times.some((at, i) => i && at <= times[i - 1]);
  const xs = numbered ? shown.map((_, i) => i) : times;
  const lows = shown.map((each) => reach(each)[0]),
    highs = shown.map((each) => reach(each)[1]);
  const low = Math.min(...lows),
    high = Math.max(...highs);
  const x = (i) => (200 * (xs[i] - xs[0])) / (xs.at(-1) - xs[0] || 1),
    y = (value) => 38 - (36 * (value - low)) / (high - low || 1);
  const upper = highs.map((value, i) => [x(i), y(value)]),
    lower = lows.map((value, i) => [x(i), y(value)]);
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 200 40", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "band", d: `${path([...upper, ...lower.reverse()])}Z` }),
    s("path", { class: "line", d: path(shown.map((each, i) => [x(i), y(middle(each))])) }),
  );
}

/** One answer as a bar from zero, with its interval, on a scale that several share. */
export function bar(release, [low, high]) {
  if (!release || !drawable(release)) return h("span", { class: "interval" });
  const at = (value) => 1 + (198 * (value - low)) / (high - low || 1);
  const [from, to] = reach(release).map(at),
    value = at(middle(release)),
    zero = at(0);
  return s(
    "svg",
    { class: "interval", viewBox: "0 0 200 14", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "track", x: 0, y: 6, width: 200, height: 2 }),
    release.value !== null &&
      s("rect", { class: "bar-value", x: Math.min(zero, value), y: 2, width: Math.abs(value - zero), height: 10 }),
    s("rect", { class: "span", x: from, y: 4.5, width: Math.max(to - from, 1), height: 5 }),
    release.value !== null && s("rect", { class: "value", x: value - 1, y: 1, width: 2, height: 12 }),
  );
}
