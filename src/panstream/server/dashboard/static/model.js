// The simulation behind "What an intruder sees". It runs in this page only and knows nothing of the live state.
//
// The same algorithm as panstream's Bitmap, small enough to draw: an id is hashed to one cell; a cell is 1 with
// probability p0 if nobody came to it and p1 = 1 - p0 if somebody did; every arrival draws it afresh. The published
// numbers are the ones of every level plus discrete Laplace noise.

export const BUCKETS = 64;
export const LEVELS = 12;
export const CELLS = BUCKETS * LEVELS;

// epsilon -> [epsilon of the state, kappa of the release]: the best split for 64 buckets, as the library computes it.
export const SPLITS = new Map([
  [0.25, [0.14086181572894357, 0.195140221489514]],
  [0.5, [0.3134577484894727, 0.3037781160849117]],
  [1, [0.691404117979503, 0.4334585534790099]],
  [2, [1.471374748771897, 0.6187166818776256]],
  [4, [2.9805105835776677, 1.051425262719794]],
]);

/** The coins and the noise that belong to an epsilon. */
export function law(epsilon) {
  const [state, kappa] = SPLITS.get(epsilon);
  const p1 = 1 / (1 + Math.exp(-state));
  return { epsilon, state, kappa, p0: 1 - p1, p1 };
}

/** The cell of an id: level j with probability 2^-(j+1). The hash is public, as the library's is. */
export function cellOf(id) {
  let a = 0x811c9dc5,
    b = 0x9747b28c;
  for (const byte of new TextEncoder().encode(id)) {
    a = Math.imul(a ^ byte, 0x01000193);
    b = Math.imul(b ^ byte, 0x85ebca6b) ^ (b >>> 15);
  }
  ((a = mix(a)), (b = mix(b ^ a)));
  const level = Math.min(Math.clz32(b >>> 0 || 1), LEVELS - 1);
  return level * BUCKETS + ((a >>> 0) % BUCKETS);
}

function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return x ^ (x >>> 16);
}

/** A uniform number in [0, 1) from the browser's secure generator. */
export function uniform() {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return (words[0] * 2 ** 21 + (words[1] >>> 11)) / 2 ** 53;
}

const coin = (p) => (uniform() < p ? 1 : 0);

/** Discrete Laplace: P(z) proportional to e^(-kappa |z|), as the difference of two geometric numbers. */
function discreteLaplace(kappa) {
  const geometric = () => Math.floor(Math.log(1 - uniform()) / -kappa);
  return geometric() - geometric();
}

/** One simulated day: some come in the morning, the intruder copies the memory at noon, some come later, one answer. */
export function simulate(day, rules) {
  const bits = Uint8Array.from({ length: CELLS }, () => coin(rules.p0));
  const exact = new Uint8Array(CELLS);
  const arrive = (id) => {
    const cell = cellOf(id);
    bits[cell] = coin(rules.p1);
    exact[cell] = 1;
  };
  day.morning.forEach(arrive);
  const seen = bits.slice(),
    seenExact = exact.slice();
  day.afternoon.forEach(arrive);
  const published = Array.from({ length: LEVELS }, (_, level) => ones(bits, level) + discreteLaplace(rules.kappa));
  return { seen, seenExact, published };
}

function ones(bits, level) {
  let count = 0;
  for (let at = level * BUCKETS; at < (level + 1) * BUCKETS; at++) count += bits[at];
  return count;
}

/** The likeliest number of visitors, from the published numbers alone. */
export function estimate(published, rules) {
  const noise = (2 * Math.exp(-rules.kappa)) / (1 - Math.exp(-rules.kappa)) ** 2;
  let best = 0,
    least = Infinity;
  for (let users = 0; users <= 20000; users = users < 50 ? users + 1 : Math.ceil(users * 1.01)) {
    let score = 0;
    for (let level = 0; level < LEVELS; level++) {
      const rate = 2 ** -Math.min(level + 1, LEVELS - 1) / BUCKETS;
      const pi = rules.p1 - (rules.p1 - rules.p0) * Math.exp(-users * rate);
      const spread = BUCKETS * pi * (1 - pi) + noise;
      score += (published[level] - BUCKETS * pi) ** 2 / (2 * spread) + Math.log(spread) / 2;
    }
    if (score < least) [least, best] = [score, users];
  }
  return best;
}

/**
 * How much the odds of "this person came" against "never came" change for an intruder who knows everything about
 * everybody else: by the copied memory, and by memory and published answer together.
 *
 * when: "morning", "afternoon" or "both": the visit whose possibility she weighs.
 */
export function factors({ cell, when, others, seen, published, rules }) {
  const sharedMorning = others.morning.has(cell),
    sharedAfternoon = others.afternoon.has(cell);
  const bit = seen[cell];
  const prob = (p) => (bit ? p : 1 - p);
  const before = sharedMorning ? rules.p1 : rules.p0;
  const morning = when !== "afternoon",
    afternoon = when !== "morning";
  const memory = prob(morning ? rules.p1 : before) / prob(before);

  // What she cannot know of the published number: the coins that were drawn after she looked.
  const level = Math.floor(cell / BUCKETS);
  let known = 0,
    drawn = 0;
  for (let at = level * BUCKETS; at < (level + 1) * BUCKETS; at++) {
    if (at === cell) continue;
    if (others.afternoon.has(at)) drawn++;
    else known += seen[at];
  }
  const own = (redrawn) => (redrawn ? [1 - rules.p1, rules.p1] : [1 - bit, bit]);
  const came = likelihood(published[level] - known, drawn, own(afternoon || sharedAfternoon), rules);
  const not = likelihood(published[level] - known, drawn, own(sharedAfternoon), rules);
  return { memory, both: memory * (came / not) };
}

/** P(rest) where rest = Binomial(drawn, p1) + own bit + discrete Laplace, up to a constant factor. */
function likelihood(rest, drawn, [zero, one], rules) {
  let total = 0,
    weight = (1 - rules.p1) ** drawn;
  for (let k = 0; k <= drawn; k++) {
    total +=
      weight *
      (zero * Math.exp(-rules.kappa * Math.abs(rest - k)) + one * Math.exp(-rules.kappa * Math.abs(rest - k - 1)));
    weight *= ((drawn - k) / (k + 1)) * (rules.p1 / (1 - rules.p1));
  }
  return total;
}
