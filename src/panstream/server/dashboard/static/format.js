// Numbers and times as people read them.

/** A number with as many digits as matter: those of its size, or of the width of the range it lies in. */
export function number(value, width = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity || value === "inf") return "∞";
  const size = Math.abs(value);
  const usual = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  const digits = width > 0 ? Math.min(Math.max(usual, 1 - Math.floor(Math.log10(width))), 8) : usual;
  return value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

/** An answer and the ends of its range, all with the same digits; an answer that is no number says what it is. */
export function answer({ value, interval: [low, high], statement, too_uncertain: unsure }) {
  const width = low === null || high === null ? 0 : Math.min(high - low, 10);
  const ends = { low: low === null ? "−∞" : number(low, width), high: high === null ? "∞" : number(high, width) };
  const words = statement?.replace(/ \(95%\)$/, "").replace(/^./, (first) => first.toUpperCase()).split("; ") ?? [];
  const said = value === null && statement ? `${ends.low} to ${ends.high}` : words[0] ?? number(value, width);
  return { value: said, shown: unsure ? "Too uncertain" : said, ...ends, more: words.slice(1).join("; ") };
}

/** A privacy loss: short, and honest about infinity. */
export function loss(value) {
  if (value === "inf" || value === Infinity) return "∞";
  if (value === null || value === undefined) return "–";
  return Number(value).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** A time of day if it was today, else the date too. */
export function moment(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return String(iso);
  const today = new Date().toDateString() === at.toDateString();
  const clock = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return today ? clock : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${clock}`;
}

/** Odds as "2.7 : 1" or "1 : 2.7". */
export function odds(value) {
  if (value === Infinity) return "certain";
  if (value === 0) return "impossible";
  return value >= 1 ? `${short(value)} : 1` : `1 : ${short(1 / value)}`;
}

/** Odds as a chance in percent. */
export const chance = (value) => `${(value === Infinity ? 100 : (100 * value) / (1 + value)).toLocaleString("en", { maximumFractionDigits: 1 })}%`;

const short = (value) => value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : value >= 10 ? 1 : 2 });

/** "1 answer", "2 answers". */
export const many = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
