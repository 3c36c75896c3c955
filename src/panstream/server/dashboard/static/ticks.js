// Where the marks of an axis stand, and what they say: never the same twice.

/** Round values between two ends, about `most` of them, each with its label. */
export function valueTicks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const marks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) {
    marks.push({ at: at * step, label: said(at * step, Math.max(Math.abs(low), Math.abs(high)), step) });
  }
  return marks;
}

function said(value, size, step) {
  const [unit, name] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e5 ? [1e3, "k"] : [1, ""];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  const text = (value / unit).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return value === 0 ? "0" : `${text.replace("-", "−")}${name}`;
}

const MINUTE = 60,
  HOUR = 3600,
  DAY = 86400;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 4, 7, 14].map((n) => n * DAY),
];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120];

/** Round times between two ends, in seconds: at least `least` apart, and such that `room(label)` holds each label. */
export function timeTicks(from, to, room, { least = 0, utc = false } = {}) {
  const zone = utc ? { timeZone: "UTC" } : {};
  const word = (style) => (at) => new Date(at * 1000).toLocaleString("en-GB", { ...style, ...zone });
  const clock = { hour: "2-digit", minute: "2-digit" },
    date = { day: "numeric", month: "short" };
  const years = new Date(from * 1000).getFullYear() !== new Date(to * 1000).getFullYear();
  for (const step of STEPS) {
    const style =
      step >= DAY
        ? years
          ? { ...date, year: "2-digit" }
          : date
        : { ...(step < MINUTE ? { ...clock, second: "2-digit" } : clock), ...(to - from > DAY ? date : {}) };
    const say = word(style);
    if (step < least || step < room(say(from))) continue;
    return unique(aligned(from, to, step, utc), say);
  }
  const say = word({ month: "short", year: "numeric" });
  const months = MONTHS.find((count) => count * 30 * DAY >= room(say(from))) ?? MONTHS.at(-1);
  return unique(starts(from, to, months, utc), say);
}

function unique(times, say) {
  const seen = new Set();
  return times.map((at) => ({ at, label: say(at) })).filter(({ label }) => !seen.has(label) && seen.add(label));
}

/** Multiples of a step since midnight, where the reader is or in UTC. */
function aligned(from, to, step, utc) {
  const offset = (at) => (utc ? 0 : new Date(at * 1000).getTimezoneOffset() * MINUTE);
  const shift = offset(from);
  const marks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) marks.push(at);
  return marks;
}

/** The first days of every so many months. */
function starts(from, to, months, utc) {
  const first = new Date(from * 1000);
  const day = (year, month) => (utc ? Date.UTC(year, month) : new Date(year, month).getTime()) / 1000;
  const begin = Math.floor((first.getFullYear() * 12 + first.getMonth()) / months) * months;
  const marks = [];
  for (let month = begin, at; (at = day(Math.floor(month / 12), month % 12)) <= to; month += months) {
    if (at >= from) marks.push(at);
  }
  return marks;
}
