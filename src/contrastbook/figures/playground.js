// The playground: views of items on a sphere follow the gradient of a contrastive loss, in float64, as contrastlab
// computes it. One module for two places: a page of the book inlines it, and anywidget loads it in JupyterLab.
// First the mathematics, without a document; then TeX as MathML; then what a reader sees and turns.

// losses.js stands before this text and defines logSumExp, logAddExp, mulberry32 and shuffle.

const CLASSES = 6;

// ---------------------------------------------------------------------------------------------- the graph of views

/** Ids [items][views] of the views of each item: `near` shared with either neighbour on a circle, `common` with all. */
export function viewTable({ circle, views, near, common }) {
  const items = CLASSES * circle;
  const raw = [];
  for (let i = 0; i < items; i++) {
    const before = i - (i % circle) + ((i - 1 + circle) % circle);
    const row = Array.from({ length: views }, (_, k) => (items + 1) * k + i);
    for (let k = 0; k < near; k++) row[near + k] = (items + 1) * k + before;
    for (let k = views - common; k < views; k++) row[k] = (items + 1) * k + items;
    raw.push(row);
  }
  const order = new Map([...new Set(raw.flat())].sort((a, b) => a - b).map((id, i) => [id, i]));
  return raw.map((row) => row.map((id) => order.get(id)));
}

/** Mutual information of two views of one item, in nats, exact; and p(v) of each view. */
export function information(table) {
  const views = 1 + Math.max(...table.flat());
  const alone = new Float64Array(views);
  const joint = new Map();
  for (const row of table) {
    const weight = 1 / (table.length * row.length * row.length);
    for (const a of row) {
      alone[a] += weight * row.length;
      for (const b of row) joint.set(a * views + b, (joint.get(a * views + b) || 0) + weight);
    }
  }
  let nats = 0;
  for (const [pair, p] of joint) nats += p * Math.log(p / (alone[Math.floor(pair / views)] * alone[pair % views]));
  return { nats: Math.max(0, nats), alone };
}

// ---------------------------------------------------------------------------------------------- parts of a recipe

/** schedules.Linear: from `start` to `end` between the fractions `begin` and `until` of a run. */
export function linear(start, end, begin, until, step, total) {
  const first = begin * total;
  const last = Math.max(until * total - 1, first);
  if (step >= last) return end;
  return step <= first ? start : start + ((end - start) * (step - first)) / (last - first);
}

/** Outer edge of the region at a step, in percent. */
export function outerEdge(state, step, total) {
  if (!state.anneal) return state.outer;
  return linear(state.start, state.outer, state.begin, until(state), step, total);
}

/** Where annealing ends, as a fraction of the run. */
export const until = (state) => Math.min(1, Math.round((state.begin + state.width) * 1e6) / 1e6);

/** Ranks [first, last) of the negatives among `keys` candidates. */
export function edges(state, keys, step, total) {
  if (state.negatives === "every") return [0, keys];
  const last = Math.floor((keys * outerEdge(state, step, total)) / 100 + 1e-9);
  return [state.negatives === "ring" ? Math.floor((keys * state.inner) / 100 + 1e-9) : 0, last];
}

const sigmoid = (v) => (v >= 0 ? 1 / (1 + Math.exp(-v)) : Math.exp(v) / (1 + Math.exp(v)));
const softplus = (v) => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v)));
const { exp, expm1, log, LN2 } = Math;

// f′(u), f*(f′(u)) and the slopes of both, as functions of v = log u
const DIVERGENCES = {
  kl: [(v) => 1 + v, exp, () => 1, exp],
  js: [(v) => LN2 - softplus(-v), (v) => softplus(v) - LN2, (v) => sigmoid(-v), sigmoid],
  pearson: [(v) => 2 * expm1(v), (v) => expm1(2 * v), (v) => 2 * exp(v), (v) => 2 * exp(2 * v)],
  hellinger: [(v) => -expm1(-v / 2), (v) => expm1(v / 2), (v) => exp(-v / 2) / 2, (v) => exp(v / 2) / 2],
  tsallis: [
    (v, a) => (a / (a - 1)) * exp((a - 1) * v),
    (v, a) => exp(a * v) + 1 / (a - 1),
    (v, a) => a * exp((a - 1) * v),
    (v, a) => a * exp(a * v),
  ],
  vincze_le_cam: [
    (v) => 1 - 4 * sigmoid(-v) ** 2,
    (v) => 3 - 8 * sigmoid(-v) + 4 * sigmoid(-v) ** 2,
    (v) => 8 * sigmoid(-v) ** 2 * sigmoid(v),
    (v) => 8 * sigmoid(-v) * sigmoid(v) ** 2,
  ],
  vincze_le_cam_printed: [
    (v) => 1 - 4 * sigmoid(-v) ** 2,
    (v) => 3 - 4 * sigmoid(-v),
    (v) => 8 * sigmoid(-v) ** 2 * sigmoid(v),
    (v) => 4 * sigmoid(-v) * sigmoid(v),
  ],
  reverse_kl: [(v) => -exp(-v), (v) => v - 1, (v) => exp(-v), () => 1],
  neyman: [(v) => -expm1(-2 * v), (v) => -2 * expm1(-v), (v) => 2 * exp(-2 * v), (v) => 2 * exp(-v)],
  jeffrey: [(v) => v - expm1(-v), (v) => v + expm1(v), (v) => 1 + exp(-v), (v) => 1 + exp(v)],
};

/** The temperature of the recipe: τ, σ² with f-MICL, and 1 where the loss does not depend on it. */
export function temperature(state) {
  return state.objective === "fmicl" ? state.sigma2 : state.objective === "au" ? 1 : state.tau;
}

/** How many keys may be negatives of one query. */
export function candidates(state) {
  const others = CLASSES * state.circle - 1;
  return { across: others, both: 2 * others, within: others, queue: state.size }[state.keys];
}

// marks the `count` largest scores of candidates; of equal ones, those of the lower index
function mark(scores, allowed, sorted, count, inside) {
  inside.fill(0);
  if (count <= 0) return;
  const edge = sorted[sorted.length - count];
  let left = count;
  for (let j = 0; j < scores.length; j++) if (allowed[j] && scores[j] > edge) (inside[j] = 1), left--;
  for (let j = 0; left && j < scores.length; j++) if (allowed[j] && scores[j] === edge) (inside[j] = 1), left--;
}

/**
 * Loss of one batch, its gradient, and who was chosen.
 *
 * `z` holds unit vectors, three numbers for each view. `batch.queries[i]` is the view that asks for item i and
 * `batch.keys[m][i]` its m-th positive key; `batch.queue` are unit vectors without gradient, with keys="queue".
 * `gradient` is that of the loss through normalisation: it is tangent to the sphere at every view.
 */
export function batchLoss(z, batch, state, step = 0, total = 1) {
  const { queries, keys, queue } = batch;
  const rows = queries.length;
  const stored = state.keys === "queue";
  const tau = temperature(state);
  const highest = 1 / tau;
  const pool = { across: keys[0], both: [...keys[0], ...queries], within: queries, queue: [] }[state.keys];
  const width = stored ? queue.length / 3 : pool.length;
  const open = candidates({ ...state, circle: rows / CLASSES, size: width });
  const [first, last] = edges(state, open, step, total);
  if (first >= last) throw new RangeError(`no key between the ranks ${first} and ${last}`);
  const close = state.positives === "neighbours" ? Math.floor((open * state.closest) / 100 + 1e-9) : 0;

  const gradient = new Float64Array(z.length);
  const scores = new Float64Array(width);
  const [allowed, inside, skipped, near] = [0, 1, 2, 3].map(() => new Uint8Array(width));
  const pull = new Float64Array(width); // dL/ds of the keys of one query
  const sorted = new Float64Array(open);
  const many = state.positives === "many" || state.positives === "joint";
  const own = new Float64Array(many ? keys.length : 1);
  const ownPull = new Float64Array(own.length);
  const chosen = [], mean = [], rowLogs = new Float64Array(rows);
  const rowsOf = []; // alignment and uniformity couple all rows, so their pulls wait for the last one
  let loss = 0, apart = 0;
  const [derivative, composition, slope, outerSlope] = DIVERGENCES[state.divergence];

  const push = (i, weight) => {
    const q = 3 * queries[i];
    const add = (k, w, from, flows) => {
      for (let c = 0; c < 3; c++) {
        gradient[q + c] += w * from[k + c];
        if (flows) gradient[k + c] += w * z[q + c];
      }
    };
    for (let m = 0; m < own.length; m++) add(3 * keys[m][i], (weight * ownPull[m]) / tau, z, !stored);
    for (let j = 0; j < width; j++)
      if (pull[j]) stored ? add(3 * j, (weight * pull[j]) / tau, queue, false) : add(3 * pool[j], (weight * pull[j]) / tau, z, true);
  };

  for (let i = 0; i < rows; i++) {
    const q = 3 * queries[i];
    const dot = (k, from) => (z[q] * from[k] + z[q + 1] * from[k + 1] + z[q + 2] * from[k + 2]) / tau;
    for (let m = 0; m < own.length; m++) own[m] = dot(3 * keys[m][i], z);
    for (let j = 0; j < width; j++) scores[j] = stored ? dot(3 * j, queue) : dot(3 * pool[j], z);
    allowed.fill(1);
    if (!stored) allowed[i] = 0;
    if (state.keys === "both") allowed[rows + i] = 0;
    if (first > 0 || last < open || close) {
      let c = 0;
      for (let j = 0; j < width; j++) if (allowed[j]) sorted[c++] = scores[j];
      sorted.sort();
    }
    if (last < open) mark(scores, allowed, sorted, last, inside);
    else inside.set(allowed);
    if (first) {
      mark(scores, allowed, sorted, first, skipped);
      for (let j = 0; j < width; j++) if (skipped[j]) inside[j] = 0;
    }
    if (close) mark(scores, allowed, sorted, close, near);
    const set = [];
    for (let j = 0; j < width; j++) if (inside[j]) set.push(j);
    chosen.push(set);
    const size = set.length;
    pull.fill(0);

    if (state.objective === "infonce" || state.objective === "without") {
      const rest = logSumExp(scores, inside);
      if (state.positives === "many") {
        for (let m = 0; m < own.length; m++) {
          const bottom = logAddExp(own[m], rest);
          loss += (bottom - own[m]) / own.length / rows;
          ownPull[m] = (exp(own[m] - bottom) - 1) / own.length;
          for (const j of set) pull[j] += exp(scores[j] - bottom) / own.length;
        }
      } else {
        const middle = own.reduce((a, b) => a + b, 0) / own.length;
        const variance = own.reduce((a, b) => a + (b - middle) ** 2, 0) / own.length;
        const joint = state.positives === "joint";
        const lifted = joint && state.strength ? middle + (state.strength / 2) * variance : middle;
        const bottom = state.objective === "without" ? rest : logAddExp(lifted, rest);
        const top = close ? logAddExp(middle, logSumExp(scores, near)) : middle;
        loss += (bottom - top) / rows;
        const share = state.objective === "without" ? 0 : exp(lifted - bottom);
        for (let m = 0; m < own.length; m++) {
          ownPull[m] = (share - exp(middle - top)) / own.length;
          if (joint) ownPull[m] += (share * state.strength * (own[m] - middle)) / own.length;
        }
        for (const j of set) pull[j] = exp(scores[j] - bottom);
        if (close) for (let j = 0; j < width; j++) if (near[j]) pull[j] -= exp(scores[j] - top);
      }
    } else if (state.objective === "fmicl") {
      let positive = 0, negative = 0;
      for (let m = 0; m < own.length; m++) {
        positive += derivative(own[m] - highest, state.order) / own.length;
        ownPull[m] = -slope(own[m] - highest, state.order) / own.length;
      }
      for (const j of set) {
        negative += composition(scores[j] - highest, state.order);
        pull[j] = (state.weight * outerSlope(scores[j] - highest, state.order)) / size;
      }
      loss += ((state.weight * negative) / size - positive) / rows;
    } else if (state.objective === "spectral") {
      let squares = 0;
      for (const j of set) (squares += scores[j] ** 2), (pull[j] = (2 * scores[j]) / size);
      const middle = own.reduce((a, b) => a + b, 0) / own.length;
      ownPull.fill(-2 / own.length);
      loss += (squares / size - 2 * middle) / rows;
    } else {
      apart += own.reduce((a, b) => a + 2 - (2 * b) / highest, 0) / own.length / rows;
      const bent = scores.map((s) => -state.t * (2 - (2 * s) / highest));
      const total_ = logSumExp(bent, inside);
      rowLogs[i] = total_ - log(size);
      ownPull.fill((-2 * state.align * tau) / own.length);
      for (const j of set) pull[j] = exp(bent[j] - total_) * state.uniform * 2 * state.t * tau;
      rowsOf.push([ownPull.slice(), pull.slice()]);
      continue;
    }
    push(i, 1 / rows);
  }
  if (state.objective === "au") {
    const every = new Uint8Array(rows).fill(1);
    const all = logSumExp(rowLogs, every);
    loss = state.align * apart + state.uniform * (all - log(rows));
    rowsOf.forEach(([p, w], i) => {
      const share = exp(rowLogs[i] - all); // of a row in the mean of the batch
      for (let m = 0; m < p.length; m++) ownPull[m] = p[m] / rows;
      for (let j = 0; j < width; j++) pull[j] = w[j] * share;
      push(i, 1);
    });
  }
  for (let v = 0; v < z.length; v += 3) {
    const along = gradient[v] * z[v] + gradient[v + 1] * z[v + 1] + gradient[v + 2] * z[v + 2];
    for (let c = 0; c < 3; c++) gradient[v + c] -= along * z[v + c];
  }
  return { loss, gradient, chosen, size: last - first };
}

// ---------------------------------------------------------------------------------------------- the flow

function generator(seed) {
  const uniform = mulberry32(seed * 2654435761 + 1013904223);
  const normal = () => Math.sqrt(-2 * log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const shuffled = (n) => shuffle(Array.from({ length: n }, (_, i) => i), uniform);
  return { normal, shuffled };
}

function unit(z, v) {
  const length = Math.hypot(z[v], z[v + 1], z[v + 2]) || 1;
  for (let c = 0; c < 3; c++) z[v + c] /= length;
}

/** Positions, velocities and draws of one run. */
export class World {
  constructor(state) {
    this.restart(state);
  }

  restart(state) {
    this.table = viewTable(state);
    const { nats, alone } = information(this.table);
    this.nats = nats;
    this.alone = alone;
    this.views = alone.length;
    this.random = generator(state.seed);
    this.z = new Float64Array(3 * this.views);
    for (let v = 0; v < this.z.length; v += 3) {
      const cap = state.origin === "cap";
      for (let c = 0; c < 3; c++) this.z[v + c] = cap ? (c < 2 ? 0.3 * this.random.normal() : 1) : this.random.normal();
      unit(this.z, v);
    }
    this.velocity = new Float64Array(3 * this.views);
    this.queue = null;
    this.scale = 0;
    this.step_ = 0;
    this.loss = NaN;
    const users = Array.from({ length: this.views }, () => new Set());
    this.table.forEach((row, i) => row.forEach((v) => users[v].add(Math.floor(i / state.circle))));
    this.classOf = users.map((set) => (set.size === 1 ? [...set][0] : -1)); // -1: a view of several classes
  }

  /** M keys and a query for every item; each slot asks once and is first key once in `views` batches. */
  batches(state) {
    const draw = this.table.map((row) => [this.random.shuffled(row.length), this.random.shuffled(row.length)]);
    const many = state.positives === "many" || state.positives === "joint";
    return this.table[0].map((_, b) => ({
      queries: this.table.map((row, i) => row[draw[i][0][b]]),
      keys: Array.from({ length: many ? state.count : 1 }, (_, m) =>
        this.table.map((row, i) => row[draw[i][1][(b + m) % row.length]])),
      queue: this.queue,
    }));
  }

  /** One step of the flow: the mean loss of the batches, momentum, and steps whose size adapts to the gradient. */
  step(state) {
    const { z, velocity, views } = this;
    const stored = state.keys === "queue";
    if (stored && (!this.queue || this.queue.length !== 3 * state.size)) {
      this.queue = new Float64Array(3 * state.size).map(() => this.random.normal());
      for (let v = 0; v < this.queue.length; v += 3) unit(this.queue, v);
    }
    const batches = this.batches(state);
    const total = new Float64Array(z.length);
    this.loss = 0;
    for (const batch of batches) {
      const { loss, gradient, size } = batchLoss(z, batch, state, this.step_, state.steps);
      this.loss += loss / batches.length;
      this.size = size;
      for (let c = 0; c < total.length; c++) total[c] += gradient[c] / batches.length;
    }
    if (stored) this.enqueue(batches, state);
    let squares = 0;
    for (const g of total) squares += g * g;
    const rms = Math.sqrt(views * squares);
    this.scale = Math.max(rms, 0.98 * this.scale);
    const rate = this.scale > 0 ? (state.rate * views) / this.scale : 0;
    for (let v = 0; v < z.length; v += 3) {
      let length = 0;
      for (let c = v; c < v + 3; c++) {
        velocity[c] = 0.9 * velocity[c] - rate * total[c];
        length += velocity[c] ** 2;
      }
      const shrink = Math.min(1, 0.1 / Math.sqrt(length || 1));
      for (let c = v; c < v + 3; c++) z[c] += velocity[c] *= shrink;
      unit(z, v);
      const along = velocity[v] * z[v] + velocity[v + 1] * z[v + 1] + velocity[v + 2] * z[v + 2];
      for (let c = 0; c < 3; c++) velocity[v + c] -= along * z[v + c];
    }
    this.step_++;
  }

  enqueue(batches, state) {
    const fresh = [];
    for (const { keys } of batches)
      for (let i = 0; i < keys[0].length; i++)
        for (let c = 0; c < 3; c++) {
          const group = state.positives === "joint" ? keys : keys.slice(0, 1);
          fresh.push(group.reduce((sum, key) => sum + this.z[3 * key[i] + c], 0) / group.length);
        }
    this.queue = Float64Array.from([...this.queue, ...fresh].slice(-3 * state.size));
  }

  /** Where each item is: the normalised mean of its views; and the mean before that. */
  items() {
    const means = new Float64Array(3 * this.table.length);
    this.table.forEach((row, i) => row.forEach((v) => {
      for (let c = 0; c < 3; c++) means[3 * i + c] += this.z[3 * v + c] / row.length;
    }));
    const places = means.slice();
    for (let v = 0; v < places.length; v += 3) unit(places, v);
    return { means, places };
  }

  /** Alignment, uniformity, share of nearest neighbours of the same class, loss and bound. */
  measures(state, bounded) {
    const { z, alone, table } = this;
    const { means, places } = this.items();
    let squares = 0;
    for (const m of means) squares += m * m;
    let spread = 0;
    for (let a = 0; a < this.views; a++) {
      spread += alone[a] * alone[a];
      for (let b = 0; b < a; b++) {
        const dot = z[3 * a] * z[3 * b] + z[3 * a + 1] * z[3 * b + 1] + z[3 * a + 2] * z[3 * b + 2];
        spread += 2 * alone[a] * alone[b] * exp(4 * (dot - 1));
      }
    }
    let right = 0;
    for (let i = 0; i < table.length; i++) {
      let best = -Infinity, equal = 0, same = 0;
      const cosine = (j) => places[3 * i] * places[3 * j] + places[3 * i + 1] * places[3 * j + 1] + places[3 * i + 2] * places[3 * j + 2];
      for (let j = 0; j < table.length; j++) if (j !== i) best = Math.max(best, cosine(j));
      for (let j = 0; j < table.length; j++)
        if (j !== i && cosine(j) > best - 1e-5) {
          equal++;
          if (Math.floor(i / state.circle) === Math.floor(j / state.circle)) same++;
        }
      right += same / equal / table.length;
    }
    return {
      loss: this.loss,
      alignment: 2 - (2 * squares) / table.length,
      uniformity: log(spread),
      right: 100 * right,
      bound: bounded && this.size && this.size < this.table.length ? log(this.size + 1) - this.loss : NaN,
    };
  }
}

// ---------------------------------------------------------------------------------------------- what the library says

const number = (value) => String(+(+value).toPrecision(6)); // as Python's :g prints the stops
const fill = (text, values) => text.replace(/@([a-z0-9+-]+)@/g, (_, name) => (name in values ? values[name] : `@${name}@`));

function values(state) {
  const all = Object.fromEntries(Object.entries(state).map(([k, v]) => [k, typeof v === "number" ? number(v) : v]));
  const order = state.divergence === "tsallis" ? number(state.order) : "None";
  return { ...all, "given-order": order, until: number(until(state)), "count+1": number(state.count + 1), "order-1": number(state.order - 1) };
}

function pieces(state, data) {
  const { pieces: p } = data;
  const several = state.positives === "many" || state.positives === "joint";
  return {
    objective: p.objective[state.objective === "fmicl" && state.divergence === "tsallis" ? "tsallis" : state.objective],
    score: p.score[state.objective],
    positives: p.positives[state.positives],
    negatives: p.negatives[`${state.negatives} ${state.anneal}`],
    keys: p.keys[state.keys],
    views: p.views[several ? "several" : "two"],
  };
}

/** Rows of Recipe.equation. */
export const equationRows = (state, data) =>
  Object.values(pieces(state, data)).map(([latex]) => fill(latex, { ...values(state), f: data.functions[state.divergence] }));

/** Recipe.equation. */
export const equation = (state, data) => `\\begin{aligned}${equationRows(state, data).join("\\\\ ")}\\end{aligned}`;

/** Python that makes the recipe; every name is a module of contrastlab. */
export function python(state, data) {
  const { views, keys, negatives, positives, objective, score } = pieces(state, data);
  const parts = { views, keys, negatives, positives, objective, temperature: score };
  const lines = Object.entries(parts).map(([name, [, code]]) => `    ${name}=${fill(code, values(state))},\n`);
  return `methods.Recipe(\n    ${data.recipe},\n${lines.join("")})`;
}

/** Whether log K − loss, K the keys in the denominator, bounds the information from below, for no more terms than items. */
export function bounded(state, data) {
  const region = state.negatives === "ring" && state.inner === 0 ? "ball" : state.negatives;
  return state.keys !== "both" && data.bounds.includes(`${region} ${state.positives} ${state.objective}`);
}

/** Why a state is refused, in the library's words; an empty text if it is not. */
export function refusal(state, data) {
  const say = (reason, more = {}) => fill(reason, { ...values(state), ...more });
  const shared = 2 * state.near + state.common;
  if (shared > state.views) return say(data.reasons.shared, { shared });
  const drawn = new Set(viewTable(state).flat()).size;
  if (drawn > data.mostViews) return say(data.reasons.many, { drawn });
  const least = state.anneal ? Math.min(state.start, state.outer) : state.outer;
  if (state.negatives === "ring" && state.inner >= least) return say(data.reasons.order, { least: number(least) });
  const combination = `${state.keys} ${state.positives} ${state.objective}`;
  const plain = state.strength === 0 && data.plain.includes(combination);
  if (combination in data.refusals && !plain) return say(data.messages[data.refusals[combination]]);
  if (state.negatives === "every") return "";
  const [first, last] = edges({ ...state, anneal: 0, outer: least }, candidates(state), 0, 1);
  const inner = state.negatives === "ring" ? number(state.inner) : "0";
  const ranks = { candidates: candidates(state), outer: number(least), inner, first, last };
  return first < last ? "" : say(data.reasons.empty, ranks);
}

// ---------------------------------------------------------------------------------------------- TeX as MathML

const SYMBOLS = {
  cdot: "⋅", in: "∈", cup: "∪", sim: "∼", to: "→", dots: "…", top: "⊤", lVert: "‖", rVert: "‖", "{": "{", "}": "}", "%": "%", sum: "∑",
};
const BLANKS = { ",": 0.17, " ": 0.33, quad: 1 };
const LETTERS = { tau: "τ", mu: "μ", Sigma: "Σ" };
const SCRIPT = { L: "ℒ", N: "𝒩", P: "𝒫", T: "𝒯" };

/** The subset of TeX that the parts of a recipe use, as MathML without its outer element. */
export function mathml(tex) {
  let at = 0;
  const element = (name, inner, attributes = "") => `<${name}${attributes}>${inner}</${name}>`;
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const raw = () => {
    const from = ++at;
    for (let depth = 1; depth; at++) depth += { "{": 1, "}": -1 }[tex[at]] || 0;
    return tex.slice(from, at - 1);
  };
  const argument = () => {
    while (tex[at] === " ") at++;
    if (tex[at] !== "{") return atom();
    at++;
    const inner = list("}");
    at++;
    return element("mrow", inner);
  };
  const blank = (width) => `<mspace width="${width}em"></mspace>`;
  const operator = (text) => element("mo", text, ' stretchy="false"');
  const atom = () => {
    const digits = /^\d+(\.\d+)?/.exec(tex.slice(at));
    if (digits) return (at += digits[0].length), element("mn", digits[0]);
    const c = tex[at++];
    if (c !== "\\") return /[a-zA-Z]/.test(c) ? element("mi", c) : operator(escape(c === "-" ? "−" : c));
    const name = /^([a-zA-Z]+|.)/.exec(tex.slice(at))[0];
    at += name.length;
    if (name === "text") return element("mtext", escape(raw()).replace(/^ | $/g, "\u00a0"));
    if (name === "frac" || name === "tfrac") {
      const [top, bottom] = [argument(), argument()];
      return element("mfrac", top + bottom, name === "tfrac" ? ' displaystyle="false"' : "");
    }
    if (name === "sqrt") return element("msqrt", argument());
    if (name === "mathcal") return element("mi", ((text) => SCRIPT[text] || text)(argument().replace(/<[^>]*>/g, "")));
    if (name === "overset") return ((over) => element("mover", argument() + over))(argument());
    if (name === "mathrel") return argument();
    if (name in LETTERS) return element("mi", LETTERS[name]);
    if (name === "log") return `${blank(0.17)}<mi>log</mi>${blank(0.17)}`;
    if (name in BLANKS) return blank(BLANKS[name]);
    if (name in SYMBOLS) return operator(SYMBOLS[name]);
    throw new Error(`no MathML for \\${name}`);
  };
  const list = (end) => {
    let out = "";
    while (at < tex.length && tex[at] !== end) {
      if (tex[at] === " ") { at++; continue; }
      if (tex[at] === "{") { out += argument(); continue; }
      const start = at;
      let base = atom();
      const sum = tex.startsWith("\\sum", start);
      let below = "", above = "";
      for (;;) {
        if (tex[at] === "'") { at++; above += operator("′"); }
        else if (tex[at] === "_") { at++; below = argument(); }
        else if (tex[at] === "^") { at++; above += argument(); }
        else break;
      }
      if (above) above = element("mrow", above);
      if (sum && below) base = element("munder", base + below);
      else if (below && above) base = element("msubsup", base + below + above);
      else if (below) base = element("msub", base + below);
      else if (above) base = element("msup", base + above);
      out += base;
    }
    return out;
  };
  return list();
}

// Where a line may break: after a comma, outside braces.
function breakable(tex) {
  const out = [""];
  let depth = 0;
  for (let i = 0; i < tex.length; i++) {
    if (tex[i] === "{" && tex[i - 1] !== "\\") depth++;
    if (tex[i] === "}" && tex[i - 1] !== "\\") depth--;
    const rest = tex.slice(i);
    if (!depth && rest.startsWith("\\text{, ")) out.push("");
    out[out.length - 1] += tex[i];
    if (!depth && tex[i] === "," && /^,\\(quad|\s)/.test(rest)) {
      i += rest.startsWith(",\\quad") ? 5 : 2;
      out.push("");
    }
  }
  return out.filter(Boolean);
}

const set = (tex) => `<math displaystyle="true">${mathml(tex)}</math>`;

/** The rows of an equation as HTML, with the TeX of the whole as a description for those who copy it. */
export function equationHtml(rows) {
  return rows.map((row) => {
    const [left, right] = row.split("&");
    return `<div>${set(left)}</div><div>${breakable(right).map((part, i) => (i && !part.startsWith("\\text{, ") ? " " : "<wbr>") + set(part)).join("")}</div>`;
  }).join("");
}

// ---------------------------------------------------------------------------------------------- what a reader sees

const RESTARTS = ["circle", "views", "near", "common", "seed", "origin"];
const MEASURES = {
  right: ["nearest right", (v) => `${v.toFixed(0)} %`, "Share of items whose nearest other item is of their class"],
  alignment: ["alignment", (v) => v.toFixed(3), "Mean squared distance of two views of an item; 0: they are at one place"],
  uniformity: ["uniformity", (v) => v.toFixed(3), "Log of the mean Gaussian kernel between any two views; the lower, the more evenly they are spread"],
  loss: ["loss", (v) => v.toFixed(3), "What the points move to lower"],
  bound: ["log K−loss", (v) => v.toFixed(3), "A lower bound on the information that two views of an item share; K counts the positive and the negatives"],
};
const SPREAD = log(Math.sinh(4) / 4) - 4; // uniformity of points evenly over the sphere

function shape(ctx, kind, x, y, r) {
  const polygon = (points) => points.forEach(([a, b], i) => ctx[i ? "lineTo" : "moveTo"](x + a * r, y + b * r));
  if (kind === 0) ctx.moveTo(x + r, y), ctx.arc(x, y, r, 0, 7);
  else if (kind === 1) ctx.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
  else if (kind === 2) polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]);
  else if (kind === 3) polygon([[0, -1.25], [1.15, 0.9], [-1.15, 0.9]]);
  else if (kind === 4) polygon([[0, 1.25], [1.15, -0.9], [-1.15, -0.9]]);
  else {
    const w = 0.42;
    polygon([[0, -w], [w, -1], [1, -w], [w, 0], [1, w], [w, 1], [0, w], [-w, 1], [-1, w], [-w, 0], [-1, -w], [-w, -1]]);
  }
  ctx.closePath();
}

/** State from an address: `#play-slug&tau=0.5`, or nothing. Values that do not exist are left out. */
export function fromAddress(hash, data) {
  const [head, ...rest] = decodeURIComponent(hash.replace(/^#/, "")).split("&");
  const preset = data.presets.find((p) => `play-${p.slug}` === head);
  if (!preset) return null;
  const state = { ...data.defaults, ...preset.state };
  for (const part of rest) {
    const [name, text] = part.split("=");
    const stops = data.stops[name];
    const value = stops ? Number(text) : text;
    const known = stops
      ? text !== "" && value >= stops[0] && value <= stops[stops.length - 1] && (data.whole.includes(name) ? Number.isInteger(value) : true)
      : name in data.choices && text in data.choices[name];
    if (known) state[name] = value;
  }
  return { preset, state: refusal(state, data) ? { ...data.defaults, ...preset.state } : state };
}

/** The address of a state, relative to a preset. */
export function toAddress(state, preset, data) {
  const base = { ...data.defaults, ...preset.state };
  const changed = Object.keys(state).filter((name) => state[name] !== base[name]);
  return [`#play-${preset.slug}`, ...changed.map((name) => `${name}=${encodeURIComponent(state[name])}`)].join("&");
}

/** Puts a playground into an element. */
export function mount(root, data, options = {}) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const build = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      name in made && typeof value !== "string" ? (made[name] = value) : made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const listeners = new AbortController();
  const on = (target, kind, act, more = {}) => target.addEventListener(kind, act, { signal: listeners.signal, ...more });

  let preset = data.presets.find((p) => p.slug === options.preset) || data.presets[0];
  let state = { ...data.defaults, ...preset.state, ...options.state };
  const linked = options.compact || options.onState ? null : fromAddress(location.hash, data);
  if (linked) ({ preset, state } = linked);
  let world = new World(state);
  let playing = false, started = false, rush = false, goal = state.steps, query = 0, frame = 0, seen = false, dirty = true;
  let turn = [1, 0, 0, 0, 1, 0, 0, 0, 1];
  let history = {}, stride = 1, palette = null, last = 0;

  // ---- elements
  const grid = build("div", { class: options.compact ? "clp-grid clp-small" : "clp-grid" });
  const choose = build("select", { "aria-label": "preset" });
  data.presets.forEach((p, i) => choose.append(new Option(`${i + 1}. ${p.title}`, p.slug)));
  choose.append(new Option("your own choice", ""));
  const head = build("div", { class: "clp-head" }, choose);
  const sphere = build("canvas", { class: "clp-sphere", tabIndex: 0, role: "img" });
  const map = build("canvas", { class: "clp-map", role: "img" });
  const bars = build("canvas", { class: "clp-bars", role: "img" });
  const barsSay = build("div", { class: "clp-cap" });
  const say = build("p", { class: "clp-say" });
  const one = build("div", { class: "clp-one" });
  const why = build("p", { class: "clp-why", role: "alert" });
  const live = build("p", { class: "clp-hide", role: "status" });
  const play = build("button", { type: "button", class: "clp-play" });
  const step = build("button", { type: "button" }, "Step");
  const again = build("button", { type: "button" }, "Restart");
  const seed = build("input", { type: "number", min: "0", max: "9", step: "1", "aria-label": "seed" });
  const clock = build("span", { class: "clp-clock" });
  const buttons = build("div", { class: "clp-buttons" }, play, step, again, build("span", { "data-knob": "seed" }, "seed ", seed), clock);
  const sparks = build("div", { class: "clp-sparks" }), others = build("div", { class: "clp-sparks" });
  const spark = {};
  for (const [name, [label, , hint]] of Object.entries(MEASURES)) {
    const value = build("b"), canvas = build("canvas", { "aria-hidden": "true" }), note = build("small");
    spark[name] = { value, canvas, note };
    const place = Object.keys(spark).length > 3 ? others : sparks;
    place.append(build("div", { title: hint }, build("div", { class: "clp-cap" }, build("span", {}, label), value), canvas, note));
  }
  const control = build("div", { class: "clp-control" }, ...(options.compact ? [] : [head]), say, buttons, one, why, live);
  const formula = build("div", { class: "clp-equation" });
  const code = build("pre", { tabIndex: 0, "aria-label": "Python that makes this recipe" });
  const copy = build("button", { type: "button" }, "Copy the Python");
  const knobs = build("div", { class: "clp-knobs" });
  const wide = (root.clientWidth || innerWidth) >= 600;
  const fold = (title, ...inside) => build("details", { class: "clp-full", open: wide }, build("summary", {}, title), ...inside);
  const side = build("div", { class: "clp-side" },
    build("div", {}, map, build("div", { class: "clp-cap" }, "The sphere unrolled: longitude across, height upwards; areas are true.")),
    build("div", { title: "τ log c: the mean of exp(cosine / τ) over the keys, as a cosine" }, bars, barsSay), others);
  if (!options.compact) control.append(sparks);
  grid.append(sphere, control);
  if (!options.compact) grid.append(fold("All knobs", knobs), fold("The same points on a map, and what one item sees", side), fold("The loss of this choice", formula, code, copy));
  root.classList.add("clp");
  root.replaceChildren(grid);

  // ---- knobs
  const inputs = []; // functions that bring a control in step with the state
  const format = (name, value) => (name === "begin" || name === "width" ? `${number(100 * value)} % of the run` : number(value));
  function knob(name) {
    const text = data.labels[name];
    if (name in data.choices) {
      const box = build("select");
      for (const [value, label] of Object.entries(data.choices[name])) box.add(new Option(label, value));
      const reasons = build("details", {}, build("summary"), build("ul"));
      on(box, "change", () => change({ [name]: box.value }));
      inputs.push(() => {
        const refused = new Map();
        for (const option of box.options) {
          const reason = option.value === state[name] ? "" : refusal({ ...state, [name]: option.value }, data);
          option.disabled = Boolean(reason);
          option.title = reason;
          if (reason) refused.set(option.text, reason);
        }
        box.value = state[name];
        reasons.hidden = !refused.size;
        reasons.firstChild.textContent = `${refused.size} not possible here`;
        reasons.lastChild.replaceChildren(...[...refused].map(([label, reason]) => build("li", {}, `${label}: ${reason}`)));
      });
      return build("div", { "data-knob": name, title: data.hints[name] }, build("label", {}, build("span", {}, text), box), reasons);
    }
    if (name === "anneal") {
      const box = build("input", { type: "checkbox" });
      on(box, "change", () => change({ anneal: Number(box.checked) }) || (box.checked = !box.checked));
      inputs.push(() => (box.checked = Boolean(state.anneal)));
      return build("div", { "data-knob": name, title: data.hints[name] }, build("label", {}, box, ` ${text}`));
    }
    const stops = [...new Set([...data.stops[name], state[name]])].sort((a, b) => a - b);
    const slider = build("input", { type: "range", min: "0", step: "1" });
    const value = build("output");
    on(slider, "input", () => {
      if (!change({ [name]: stops[slider.value] })) inputs.forEach((sync) => sync());
    });
    inputs.push(() => {
      if (!stops.includes(state[name])) stops.splice(0, stops.length, ...[...stops, state[name]].sort((a, b) => a - b));
      slider.max = stops.length - 1;
      slider.value = stops.indexOf(state[name]);
      value.textContent = format(name, state[name]);
      slider.setAttribute("aria-valuetext", `${text} ${format(name, state[name])}`);
    });
    return build("div", { "data-knob": name, title: data.hints[name] }, build("label", {}, build("span", {}, text, value), slider));
  }
  function need(name) {
    return Object.entries(data.needs[name] || {}).every(([other, accepted]) => accepted.includes(state[other]));
  }
  let shown = "";
  function arrange() {
    // rebuilt where other knobs have a meaning than before; else kept, so that the one in use keeps the focus
    const members = Object.values(data.groups).flat().filter(need);
    const key = [preset.slug, ...members].join(" ");
    if (key !== shown) {
      const focus = root.contains(document.activeElement) ? document.activeElement.closest("[data-knob]") : null;
      const inOne = focus && one.contains(focus);
      shown = key;
      inputs.length = 0;
      one.replaceChildren(knob(preset.knob));
      if (!options.compact)
        knobs.replaceChildren(...Object.entries(data.groups).map(([title, names]) =>
          build("fieldset", {}, build("legend", {}, title), ...names.filter((n) => need(n) && n !== "seed").map(knob))));
      const again_ = focus && (inOne ? one : knobs).querySelector(`[data-knob="${focus.dataset.knob}"] :is(input, select)`);
      if (again_) again_.focus();
    }
    inputs.forEach((sync) => sync());
    seed.value = state.seed;
    const base = { ...data.defaults, ...preset.state };
    const same = Object.keys(base).every((name) => base[name] === state[name] || name === "seed" || name === preset.knob);
    choose.value = same ? preset.slug : "";
    say.textContent = same ? `What to look for: ${preset.sentence}` : `Your own choice, begun from “${preset.title}”.`;
    formula.innerHTML = equationHtml(equationRows(state, data));
    formula.setAttribute("data-tex", equation(state, data));
    code.textContent = `from contrastlab import ${data.modules}\n\n${python(state, data)}`;
  }

  // ---- changes
  function change(changes, quiet = false) {
    const next = { ...state, ...changes };
    const reason = refusal(next, data);
    why.textContent = reason;
    if (reason) return false;
    const anew = RESTARTS.some((name) => next[name] !== state[name]) || next.steps !== state.steps;
    state = next;
    if (anew) restart();
    else goal = Math.max(goal, world.step_ + state.steps);
    if (!quiet) run(started);
    arrange();
    publish();
    return true;
  }
  function load(next, from) {
    preset = from;
    state = next;
    touched = false;
    why.textContent = "";
    restart();
    arrange();
    publish();
    live.textContent = `${preset.title}. ${preset.sentence}`;
  }
  let pending = 0;
  function publish() {
    clearTimeout(pending);
    pending = setTimeout(() => {
      if (options.onState) options.onState({ ...state });
      else if (!options.compact) globalThis.history.replaceState(null, "", toAddress(state, preset, data));
    }, 250);
  }
  function restart() {
    world.restart(state);
    goal = state.steps;
    history = Object.fromEntries(Object.keys(MEASURES).map((name) => [name, []]));
    stride = 1;
    run(started);
  }
  function run(go) {
    started ||= go;
    if (go && world.step_ >= goal) goal = world.step_ + state.steps;
    playing = go;
    rush = go && still;
    play.textContent = go ? "Pause" : "▶ Play";
    if (!go && world.step_) live.textContent = sentence();
    play.setAttribute("aria-pressed", String(go));
    dirty = true;
    wake();
  }

  // ---- motion
  function advance() {
    world.step(state);
    if (world.step_ % stride === 0) {
      const now = world.measures(state, bounded(state, data));
      for (const name in now) history[name].push(now[name]);
      if (history.loss.length > 400) {
        stride *= 2;
        for (const name in history) history[name] = history[name].filter((_, i) => i % 2);
      }
    }
    if (world.step_ >= goal) run(false);
  }
  function tick(now) {
    frame = 0;
    if (!seen) return;
    if (playing && rush) {
      const start = performance.now();
      while (playing && performance.now() - start < 40) advance();
      if (!playing) gather(), follow(1), draw(true);
    } else if (playing && now - last > 13) { // a display of 120 Hz does not run twice as fast
      last = now;
      for (let k = state.steps > 300 ? 2 : 1; k && playing; k--) advance();
      draw(!playing || world.step_ % 6 < 2);
    } else if (dirty) draw(true);
    if (playing || dirty) wake();
  }
  const wake = () => { if (!frame && seen) frame = requestAnimationFrame(tick); };

  // ---- drawing
  function colours() {
    const css = getComputedStyle(root);
    const [ink, line, ground] = ["--fg", "--line", "--bg"].map((name) => css.getPropertyValue(name).trim() || "#888");
    const probe = build("canvas").getContext("2d");
    probe.fillStyle = ground;
    const dark = /^#/.test(probe.fillStyle) && parseInt(probe.fillStyle.slice(1, 3), 16) < 110;
    const classes = data.classColours.map((c, i) => (i === 0 && dark ? "#f0f0f0" : c));
    palette = { ink, line, ground, classes, dark };
  }
  function surface(canvas) {
    const scale = Math.min(3, devicePixelRatio || 1);
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
      canvas.width = Math.round(w * scale);
      canvas.height = Math.round(h * scale);
    }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, w, h);
    return [ctx, w, h];
  }
  const rotate = (z, v, out) => {
    for (let r = 0; r < 3; r++) out[r] = turn[3 * r] * z[v] + turn[3 * r + 1] * z[v + 1] + turn[3 * r + 2] * z[v + 2];
  };
  // The batch shown: the first slot of each item asks, the second answers; a draw that the flow makes, too.
  function shownBatch() {
    const many = state.positives === "many" || state.positives === "joint";
    const keys = Array.from({ length: many ? state.count : 1 }, (_, m) => world.table.map((row) => row[(1 + m) % row.length]));
    const batch = { queries: world.table.map((row) => row[0]), keys, queue: world.queue };
    return state.keys === "queue" && !world.queue ? null : batch;
  }
  function look() {
    const batch = shownBatch();
    if (!batch) return null;
    const { chosen } = batchLoss(world.z, batch, state, world.step_, state.steps);
    const { z } = world;
    const q = 3 * batch.queries[query];
    const dot = (k, from) => z[q] * from[k] + z[q + 1] * from[k + 1] + z[q + 2] * from[k + 2];
    const pool = { across: batch.keys[0], both: [...batch.keys[0], ...batch.queries], within: batch.queries }[state.keys];
    const width = pool ? pool.length : batch.queue.length / 3;
    const cosines = Array.from({ length: width }, (_, j) => (pool ? dot(3 * pool[j], z) : dot(3 * j, batch.queue)));
    const banned = state.keys === "queue" ? [] : [query, query + world.table.length];
    const open = cosines.filter((_, j) => !banned.includes(j));
    const tau = temperature(state);
    const top = Math.max(...open);
    const level = top + tau * log(open.reduce((sum, c) => sum + exp((c - top) / tau), 0) / open.length);
    const inside = chosen[query].map((j) => cosines[j]);
    return { batch, pool, chosen: chosen[query], open, inside, level, own: batch.keys.map((key) => dot(3 * key[query], z)) };
  }
  let places = null, heaps = [], seenNow = null, drawn = 0, touched = false;
  function gather() {
    places = world.items().places;
    const count = world.table.length, left = new Set(Array.from({ length: count }, (_, i) => i));
    heaps = [];
    for (let i = 0; i < count; i++) {
      if (!left.has(i)) continue;
      const near = [...left].filter((j) => places[3 * i] * places[3 * j] + places[3 * i + 1] * places[3 * j + 1] + places[3 * i + 2] * places[3 * j + 2] > 0.9985);
      if (near.length > 3) near.forEach((j) => left.delete(j)), heaps.push([i, near.length]);
    }
  }
  function dots(ctx, project, backs) {
    const { z, views, classOf } = world;
    const p = [0, 0, 0];
    for (const behind of backs ? [true, false] : [false])
      for (const size of [0, 1])
        for (let c = size ? 0 : -1; c < 6; c++) {
          ctx.beginPath();
          const count = size ? world.table.length : views;
          for (let i = 0; i < count; i++) {
            if ((size ? Math.floor(i / state.circle) : classOf[i]) !== c) continue;
            rotate(size ? places : z, 3 * i, p);
            if (backs && p[2] < 0 !== behind) continue;
            const [x, y] = project(p);
            if (size) shape(ctx, c, x, y, 5);
            else ctx.moveTo(x + 2, y), ctx.arc(x, y, 2, 0, 7);
          }
          ctx.globalAlpha = behind ? 0.25 : 1;
          ctx.fillStyle = c < 0 ? "#999999" : palette.classes[c];
          ctx.fill();
          if (size && !behind) (ctx.lineWidth = 0.8), (ctx.strokeStyle = palette.ground), ctx.stroke();
        }
    ctx.globalAlpha = 1;
    if (seenNow) {
      const { batch, pool, chosen } = seenNow;
      const ring = (v, r, colour, from = z) => {
        rotate(from, 3 * v, p);
        if (backs && p[2] < 0) ctx.globalAlpha = 0.35;
        const [x, y] = project(p);
        ctx.beginPath();
        ctx.arc(x, y, r, 0, 7);
        ctx.lineWidth = 1.6;
        ctx.strokeStyle = colour;
        ctx.stroke();
        ctx.globalAlpha = 1;
      };
      if (state.negatives !== "every") for (const j of chosen) pool ? ring(pool[j], 5, "#D55E00") : ring(j, 5, "#D55E00", batch.queue);
      for (const key of batch.keys) ring(key[query], 7, "#009E73");
      ring(batch.queries[query], 10, palette.ink);
    }
    ctx.font = "bold 12px sans-serif";
    ctx.textAlign = "center";
    ctx.lineWidth = 3;
    ctx.strokeStyle = palette.ground;
    ctx.fillStyle = palette.ink;
    for (const [i, count] of heaps) {
      rotate(places, 3 * i, p);
      const [x, y] = project(p);
      const text = count === world.table.length || heaps.length < 3 ? `${count} items here` : `${count}`;
      ctx.strokeText(text, x, y - 13);
      ctx.fillText(text, x, y - 13);
    }
    ctx.globalAlpha = 1;
  }
  function drawSphere() {
    const [ctx, w, h] = surface(sphere);
    const r = Math.min(w, h) / 2 - 12;
    ctx.lineWidth = 1;
    ctx.strokeStyle = palette.line;
    ctx.beginPath();
    ctx.arc(w / 2, h / 2, r, 0, 7);
    ctx.stroke();
    const project = (p) => [w / 2 + r * p[0], h / 2 - r * p[1]];
    const p = [0, 0, 0];
    for (const back of [true, false]) { // three great circles, so that the turning shows
      ctx.globalAlpha = back ? 0.35 : 0.9;
      ctx.beginPath();
      for (let circle = 0; circle < 3; circle++) {
        let pen = false;
        for (let a = 0; a <= 72; a++) {
          const [s, c] = [Math.sin((a * Math.PI) / 36), Math.cos((a * Math.PI) / 36)];
          rotate([[s, c, 0], [s, 0, c], [0, s, c]][circle], 0, p);
          const visible = p[2] < 0 === back;
          if (visible) ctx[pen ? "lineTo" : "moveTo"](...project(p));
          pen = visible;
        }
      }
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
    dots(ctx, project, true);
  }
  function drawMap() {
    const [ctx, w, h] = surface(map);
    ctx.strokeStyle = palette.line;
    ctx.lineWidth = 1;
    ctx.strokeRect(0.5, 0.5, w - 1, h - 1);
    ctx.beginPath();
    for (const x of [0.25, 0.5, 0.75]) ctx.moveTo(x * w, 0), ctx.lineTo(x * w, h);
    ctx.moveTo(0, h / 2), ctx.lineTo(w, h / 2);
    ctx.globalAlpha = 0.4;
    ctx.stroke();
    ctx.globalAlpha = 1;
    dots(ctx, (p) => [w / 2 + (Math.atan2(p[0], p[2]) / Math.PI) * (w / 2 - 7), h / 2 - p[1] * (h / 2 - 8)], false);
  }
  function drawBars() {
    const [ctx, w, h] = surface(bars);
    const bottom = h - 16, bins = 40;
    ctx.font = "11px sans-serif";
    ctx.fillStyle = palette.ink;
    ctx.textAlign = "center";
    for (const tick of [-1, -0.5, 0, 0.5, 1]) ctx.fillText(String(tick).replace("-", "−"), 10 + ((tick + 1) / 2) * (w - 20), h - 3);
    if (!seenNow) return;
    const { open, inside, level, own } = seenNow;
    const at = (c) => 10 + ((c + 1) / 2) * (w - 20);
    const counts = (list) => {
      const out = new Array(bins).fill(0);
      for (const c of list) out[Math.min(bins - 1, Math.max(0, Math.floor(((c + 1) / 2) * bins)))]++;
      return out;
    };
    const [all, some] = [counts(open), counts(inside)];
    const most = Math.max(...all, 1);
    all.forEach((n, b) => {
      const [x, wide_] = [at((2 * b) / bins - 1), (w - 20) / bins - 1];
      const high = (m) => (m / most) * (bottom - 14);
      ctx.fillStyle = "#BBBBBB";
      ctx.fillRect(x, bottom - high(n), wide_, high(n));
      ctx.fillStyle = "#D55E00";
      ctx.fillRect(x, bottom - high(some[b]), wide_, high(some[b]));
    });
    ctx.strokeStyle = palette.ink;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(10, bottom + 0.5), ctx.lineTo(w - 10, bottom + 0.5);
    ctx.stroke();
    const upright = (c, colour, dash, text, y) => {
      ctx.setLineDash(dash);
      ctx.strokeStyle = colour;
      ctx.lineWidth = 2;
      ctx.beginPath();
      ctx.moveTo(at(c), bottom), ctx.lineTo(at(c), y + 3);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = palette.ink;
      ctx.textAlign = c > 0.6 ? "right" : c < -0.6 ? "left" : "center";
      ctx.fillText(text, at(c), y);
    };
    for (const c of own) upright(c, "#009E73", [], "", 14);
    upright(Math.max(-1, Math.min(1, level)), palette.dark ? "#56B4E9" : "#0072B2", [5, 4], "τ log c", 10);
  }
  function drawSparks() {
    const chance = (100 * (state.circle - 1)) / (world.table.length - 1);
    const marks = { alignment: 0, uniformity: SPREAD, right: chance, bound: world.nats };
    const notes = {
      loss: "of the last step", alignment: "0: views agree", uniformity: `${SPREAD.toFixed(2)}: even`.replace("-", "−"),
      right: `by chance ${chance.toFixed(0)} %`, bound: `of I = ${world.nats.toFixed(2)} nats`,
    };
    if (!bounded(state, data)) notes.bound = `no bound; I = ${world.nats.toFixed(2)}`;
    for (const [name, { value, canvas, note }] of Object.entries(spark)) {
      const series = history[name] || [];
      const now = series[series.length - 1];
      value.textContent = Number.isFinite(now) ? MEASURES[name][1](now).replace("-", "−") : "–";
      note.textContent = notes[name];
      const [ctx, w, h] = surface(canvas);
      const ends = [...series.filter(Number.isFinite), ...(name in marks ? [marks[name]] : [])];
      if (!series.length) continue;
      let [low, high] = name === "right" ? [0, 100] : [Math.min(...ends), Math.max(...ends)];
      if (high - low < 1e-9) (low -= 0.5), (high += 0.5);
      const y = (v) => h - 3 - ((v - low) / (high - low)) * (h - 6);
      ctx.lineWidth = 1.2;
      if (name in marks) {
        ctx.strokeStyle = palette.dark ? "#56B4E9" : "#0072B2";
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(0, y(marks[name])), ctx.lineTo(w, y(marks[name]));
        ctx.stroke();
        ctx.setLineDash([]);
      }
      ctx.strokeStyle = palette.ink;
      ctx.beginPath();
      series.forEach((v, i) => {
        if (Number.isFinite(v)) ctx.lineTo((i / Math.max(1, series.length - 1)) * w, y(v));
      });
      ctx.stroke();
    }
  }
  /** What is on screen, in one sentence with the present numbers. */
  function sentence() {
    const now = Object.fromEntries(Object.keys(MEASURES).map((name) => [name, (history[name] || []).slice(-1)[0]]));
    const told = Object.entries(MEASURES).filter(([name]) => Number.isFinite(now[name]))
      .map(([name, [label, form]]) => `${label} ${form(now[name])}`);
    if (heaps.length) told.push(`${heaps.map(([, n]) => n).join(" and ")} items in one place`);
    const changed = Object.keys(state).filter((name) => name in data.labels && state[name] !== (preset.state[name] ?? data.defaults[name]));
    const chosen = changed.map((name) => `${data.labels[name]} ${(data.choices[name] || {})[state[name]] || format(name, state[name])}`);
    const title = changed.length ? `Your choice, ${chosen.join(", ")}` : preset.title;
    return `${title}: ${world.views} views of ${world.table.length} items on a sphere after ${world.step_} steps${told.length ? ": " : ""}${told.join(", ")}.`;
  }
  // Where most items lie on one side, the sphere turns that side to the front, unless a reader has turned it.
  function follow(part) {
    const centre = [0, 0, 0], p = [0, 0, 0];
    for (let v = 0; v < places.length; v++) centre[v % 3] += places[v] / world.table.length;
    rotate(centre, 0, p);
    if (touched || Math.hypot(...p) < 0.3) return;
    turned(-part * Math.atan2(p[0], p[2]), part * (Math.atan2(p[1], Math.hypot(p[0], p[2])) - 0.3));
  }
  function draw(all) {
    gather();
    if (playing) follow(0.06);
    dirty = false;
    drawn++;
    if (!palette) colours();
    if (all || !seenNow) seenNow = options.compact ? null : look();
    drawSphere();
    if (!options.compact) {
      drawMap();
      if (all) drawBars(), drawSparks();
    }
    clock.textContent = `step ${world.step_}`;
    if (all) {
      const words = sentence();
      sphere.setAttribute("aria-label", `${words} Arrow keys turn the sphere.`);
      map.setAttribute("aria-label", `The same points unrolled. ${words}`);
      if (seenNow) {
        const kept = state.negatives === "every" ? "all are negatives" : `${seenNow.inside.length} are negatives (orange)`;
        const text = `Item ${query + 1} asks: cosines with ${seenNow.open.length} keys, ${kept}; its positive is green. Click a point to ask another.`;
        if (barsSay.textContent !== text) barsSay.textContent = text;
        bars.setAttribute("aria-label", `${text} τ log c is ${seenNow.level.toFixed(2)}.`);
      }
    }
  }

  // ---- pointer and keys
  const turned = (yaw, pitch) => {
    const [a, b, c, d] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    const m = [a, 0, b, b * d, c, -a * d, -b * c, d, a * c];
    turn = Array.from({ length: 9 }, (_, k) => [0, 1, 2].reduce((s, j) => s + m[3 * Math.floor(k / 3) + j] * turn[3 * j + (k % 3)], 0));
    dirty = true;
    wake();
  };
  let grabbed = null;
  on(sphere, "pointerdown", (event) => {
    grabbed = { x: event.clientX, y: event.clientY, moved: 0 };
    sphere.setPointerCapture(event.pointerId);
  });
  on(sphere, "pointermove", (event) => {
    if (!grabbed) return;
    const [dx, dy] = [event.clientX - grabbed.x, event.clientY - grabbed.y];
    grabbed = { x: event.clientX, y: event.clientY, moved: grabbed.moved + Math.abs(dx) + Math.abs(dy) };
    const radius = sphere.clientWidth / 2;
    touched = true;
    turned(dx / radius, dy / radius);
  });
  const ask = (canvas, event, project) => {
    const box = canvas.getBoundingClientRect(), p = [0, 0, 0];
    let best = 400;
    for (let i = 0; places && i < world.table.length; i++) {
      rotate(places, 3 * i, p);
      const [x, y, front] = project(p, box.width, box.height);
      const far = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2 + (front ? 0 : 150);
      if (far < best) (best = far), (query = i);
    }
    dirty = true;
    wake();
  };
  on(sphere, "pointerup", (event) => {
    if (grabbed && grabbed.moved < 5 && !options.compact)
      ask(sphere, event, (p, w, h) => [w / 2 + (w / 2 - 12) * p[0], h / 2 - (h / 2 - 12) * p[1], p[2] >= 0]);
    grabbed = null;
  });
  on(sphere, "pointercancel", () => (grabbed = null));
  on(map, "click", (event) =>
    ask(map, event, (p, w, h) => [w / 2 + (Math.atan2(p[0], p[2]) / Math.PI) * (w / 2 - 7), h / 2 - p[1] * (h / 2 - 8), true]));
  on(sphere, "keydown", (event) => {
    const way = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
    if (way) (touched = true), turned(...way);
    else if (event.key === " ") run(!playing);
    else if (/^[nN]$/.test(event.key)) (query = (query + 1) % world.table.length), (dirty = true), wake();
    else return;
    event.preventDefault();
  });
  on(play, "click", () => run(!playing));
  on(step, "click", () => {
    run(false);
    advance();
    run(false);
  });
  on(again, "click", restart);
  on(seed, "change", () => {
    const value = Math.max(0, Math.min(9, Math.round(Number(seed.value)) || 0));
    change({ seed: value });
  });
  on(choose, "change", () => {
    const next = data.presets.find((p) => p.slug === choose.value);
    if (next) load({ ...data.defaults, ...next.state }, next);
    else choose.value = preset.slug;
  });
  on(copy, "click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "Selected: press Ctrl+C";
    }
  });
  if (!options.compact && !options.onState)
    on(globalThis, "hashchange", () => {
      const found = fromAddress(location.hash, data);
      if (!found) return;
      load(found.state, found.preset);
      root.scrollIntoView();
    });

  // ---- in sight, in the right size and colours
  const watch = new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    dirty = true;
    wake();
  });
  watch.observe(grid);
  const resize = new ResizeObserver(() => ((dirty = true), wake()));
  resize.observe(grid);
  const theme = () => ((palette = null), (dirty = true), wake());
  const themes = new MutationObserver(theme);
  for (const element of [document.documentElement, document.body])
    themes.observe(element, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-light", "class"] });
  on(matchMedia("(prefers-color-scheme: dark)"), "change", theme);

  arrange();
  turned(0.5, 0.35);
  restart();
  // the browser goes to the preset's place on the page when all is loaded; the sphere is what was meant
  const reveal = () => setTimeout(() => root.scrollIntoView(), 100);
  if (linked) document.readyState === "complete" ? reveal() : on(globalThis, "load", reveal);
  const handle = {
    get state() { return { ...state }; },
    get world() { return world; },
    get playing() { return playing; },
    get preset() { return preset.slug; },
    get frames() { return drawn; },
    change, run, restart, sentence, data,
    load: (slug) => { const p = data.presets.find((q) => q.slug === slug); load({ ...data.defaults, ...p.state }, p); },
    engine: { World, batchLoss, viewTable, information, linear, equation, python, refusal, bounded, fromAddress, toAddress, mathml, equationRows },
    destroy() {
      seen = false;
      cancelAnimationFrame(frame);
      clearTimeout(pending);
      listeners.abort();
      for (const observer of [watch, resize, themes]) observer.disconnect();
      root.replaceChildren();
    },
  };
  root.playground = handle;
  return handle;
}

/** For anywidget: the state is a trait, in both directions. */
export default {
  render({ model, el }) {
    const handle = mount(el, model.get("data"), {
      preset: model.get("preset"),
      state: model.get("state"),
      onState: (state) => {
        model.set("state", state);
        model.save_changes();
      },
    });
    const follow = () => {
      const next = model.get("state"), now = handle.state;
      if (Object.keys(next).some((name) => next[name] !== now[name])) handle.change(next);
    };
    model.on("change:state", follow);
    return () => {
      model.off("change:state", follow);
      handle.destroy();
    };
  },
};
