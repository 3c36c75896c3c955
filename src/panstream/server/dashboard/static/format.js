// Numbers and times as people read them.

/** A number with as many digits as matter: those of its size, or of the width of the range it lies in. */
export function number(value, width = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity || value === "inf") return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  const usual = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  const digits = width > 0 ? Math.min(Math.max(usual, 1 - Math.floor(Math.log10(width))), 8) : usual;
  return value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

const UNSURE = "Too uncertain to say";

/** An answer and the ends of its range, all with the same digits; an answer that is no number says what it is. */
export function answer({ value, interval: [low, high], description, too_uncertain: unsure }) {
  const width = low === null || high === null ? 0 : Math.min(high - low, 10);
  const ends = { low: low === null ? "−∞" : number(low, width), high: high === null ? "∞" : number(high, width) };
  const capital = (text) => text.replace(/^./, (first) => first.toUpperCase());
  const words = description ? capital(description.replace(/ \(95%\)$/, "")).split("; ") : [];
  const said = value === null && description ? `${ends.low} to ${ends.high}` : (words[0] ?? number(value, width));
  const more = words.slice(1).join("; ");
  const range = !description ? `95%: ${ends.low} to ${ends.high}` : more ? `95%: ${more}` : "with 95% confidence";
  return { value: said, shown: unsure ? UNSURE : said, ...ends, range };
}

/** A privacy loss: short, and honest about infinity. */
export function loss(value) {
  if (value === "inf" || value === Infinity) return "∞";
  if (value === null || value === undefined) return "–";
  return Number(value).toLocaleString("en", { maximumSignificantDigits: 3 });
}

const DATE = { day: "numeric", month: "short", year: "numeric" };

/** A time of day if it was today, else the date too. */
export function moment(time) {
  const at = new Date(typeof time === "number" ? time * 1000 : time);
  if (Number.isNaN(at.getTime())) return String(time);
  const seconds = at.getSeconds() ? { second: "2-digit" } : {};
  const clock = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...seconds });
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock : `${at.toLocaleDateString("en-GB", DATE)}, ${clock}`;
}

let zone = "UTC"; // of the stream's calendar

/** Say days as they are in a time zone from now on. */
export function setTimeZone(name) {
  zone = name;
}

/** The day of a time in the stream's time zone, as 2026-03-01. */
export const localDay = (seconds) => new Date(seconds * 1000).toLocaleDateString("sv", { timeZone: zone });

/** Whether a day of the stream's time zone begins at a time: what is a millisecond earlier is another day. */
const isMidnight = (at) => localDay(at / 1000) !== localDay((at - 1) / 1000);

/** A window: its day or days if it is made of whole ones in the stream's time zone; else when it begins. */
export function windowed([from, to]) {
  const day = (at) => new Date(at).toLocaleDateString("en-GB", { ...DATE, timeZone: zone });
  const [begin, end] = [Date.parse(from), Date.parse(to)];
  if (!isMidnight(begin) || !isMidnight(end)) return `from ${moment(from)}`;
  const [first, last] = [day(begin), day(end - 1)];
  return first === last ? first : `${first} to ${last}`;
}

/** Units of the calendar by the seconds that name them, as in primitives/time_grid.py. */
const CALENDAR = new Map([
  [174600, "day"],
  [693000, "week"],
  [2766600, "month"],
  [8037000, "quarter"],
  [31710600, "year"],
]);

/** Whether windows are units of the calendar, whose lengths differ. */
export const isCalendar = (seconds) => CALENDAR.has(seconds);

/** "day", "3 hours". */
export function duration(seconds) {
  if (isCalendar(seconds)) return CALENDAR.get(seconds);
  for (const [unit, length] of [
    ["week", 604800],
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
  ]) {
    if (seconds >= length && seconds % length === 0) return seconds === length ? unit : many(seconds / length, unit);
  }
  return seconds === 1 ? "second" : many(seconds, "second");
}

/** So many per second as "3.2 per minute", with its range in the same unit. */
export function perTime({ value, low, high }) {
  const [unit, times] = [
    ["second", 1],
    ["minute", 60],
    ["hour", 3600],
    ["day", 86400],
  ].find(([, length]) => Math.abs(value) * length >= 1) ?? ["day", 86400];
  const width = Number.isFinite(high - low) ? Math.min((high - low) * times, 10) : 0;
  return {
    value: `${number(value * times, width)} per ${unit}`,
    range: `${number(low * times, width)} to ${number(high * times, width)}`,
  };
}

/** A share of one, such as a change or a level, in percent. */
export const percent = (share, sign = false) =>
  `${sign && share > 0 ? "+" : ""}${number(100 * share).replace(/(\.\d).*/, "$1")}%`;

/** Odds as "2.7 : 1" or "1 : 2.7". */
export function odds(value) {
  if (value === Infinity) return "certain";
  if (value === 0) return "impossible";
  return value >= 1 ? `${short(value)} : 1` : `1 : ${short(1 / value)}`;
}

/** Odds as a chance in percent. */
export const chance = (value) =>
  `${(value === Infinity ? 100 : (100 * value) / (1 + value)).toLocaleString("en", { maximumFractionDigits: 1 })}%`;

const short = (value) => value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : value >= 10 ? 1 : 2 });

/** "1 answer", "2 answers". */
export const many = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
