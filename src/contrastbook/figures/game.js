// The game of the front page: pick the partner of a view among other pictures, as an encoder must.
// First the rules and the counting, without a document; then what a visitor sees and presses.
// losses.js stands before this text and defines logSumExp, mulberry32 and shuffle.

const ROUNDS = 10; // of a game
const VARIANTS = 4; // of a square: as it is, mirrored, grey, grey and mirrored
const LEFT_OUT = 0.1; // share of the nearest pictures that a ring leaves out

/** Unit embeddings of all views, one after the other: of each tile its squares, of each square its variants. */
export function unpack(data) {
  const bytes = Uint8Array.from(atob(data.embeddings), (letter) => letter.charCodeAt(0));
  const steps = new Int8Array(bytes.buffer);
  const unit = new Float64Array(steps.length);
  for (let start = 0; start < steps.length; start += data.dim) {
    let square = 0;
    for (let d = start; d < start + data.dim; d++) square += steps[d] * steps[d];
    for (let d = start; d < start + data.dim; d++) unit[d] = steps[d] / Math.sqrt(square);
  }
  return unit;
}

/** Cosine of two views over the temperature, in nats. */
export function score(data, unit, a, b) {
  const place = (view) => ((view.tile * data.squares[0].length + view.square) * VARIANTS + view.variant) * data.dim;
  const first = place(a);
  const second = place(b);
  let cosine = 0;
  for (let d = 0; d < data.dim; d++) cosine += unit[first + d] * unit[second + d];
  return cosine / data.temperature;
}

/** What one round says of the information, in nats: log K less the cross-entropy of the partner. */
export const nats = (scores, partner) => Math.log(scores.length) + scores[partner] - logSumExp(scores);

/** A round: a query, K candidates, the place of its partner among them, and the encoder's score of each. */
export function deal(data, unit, settings, draw) {
  const tiles = data.squares.length;
  const whole = 0;
  const square = () => (settings.crop ? 1 + Math.floor(draw() * (data.squares[0].length - 1)) : whole);
  const tile = Math.floor(draw() * tiles);
  const query = { tile, square: square(), variant: 0 };
  const variant = (settings.flip ? 1 : 0) + (settings.grey ? 2 : 0);
  const views = [];
  for (let other = 0; other < tiles; other++) {
    let own = square();
    while (other === tile && settings.crop && own === query.square) own = square();
    views.push({ tile: other, square: own, variant });
  }
  const others = views.filter((view) => view.tile !== tile);
  const scored = others.map((view) => [score(data, unit, query, view), view]).sort((a, b) => b[0] - a[0]);
  const nearest = scored.map(([, view]) => view);
  const first = settings.others === "ring" ? Math.floor(LEFT_OUT * nearest.length) : 0;
  const negatives = settings.others === "random" ? shuffle(nearest, draw) : nearest.slice(first);
  const candidates = shuffle([views[tile], ...negatives.slice(0, settings.size - 1)], draw);
  return {
    query,
    candidates,
    partner: candidates.indexOf(views[tile]),
    scores: candidates.map((view) => score(data, unit, query, view)),
  };
}

/**
 * What a visitor's picks reveal. A pick gives the picked view the probability that Laplace's rule expects of it from the
 * rounds before, (right + 1) / (rounds + 2), and every other candidate the same share of the rest.
 */
export class Picks {
  constructor() {
    this.right = 0;
    this.terms = [];
  }
  add(isRight, size) {
    const trust = (this.right + 1) / (this.terms.length + 2);
    this.terms.push(Math.log(size) + Math.log(isRight ? trust : (1 - trust) / (size - 1)));
    if (isRight) this.right++;
  }
}

/** Mean of terms and its standard error, which one term does not have. */
export function summary(terms) {
  const mean = terms.reduce((sum, term) => sum + term, 0) / terms.length;
  const squares = terms.reduce((sum, term) => sum + (term - mean) ** 2, 0);
  return { mean, error: terms.length > 1 ? Math.sqrt(squares / (terms.length - 1) / terms.length) : NaN };
}

// ------------------------------------------------------------------------------------------------ what a visitor sees

const number = (value) => value.toFixed(2).replace("-", "−");

function inWords({ mean, error }) {
  return number(mean) + (Number.isFinite(error) ? ` ± ${number(error)}` : "");
}

/** A colour in words, for those who do not see the pictures. */
export function colourName(hex, isGrey) {
  const channels = [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16) / 255);
  const [red, green, blue] = channels;
  const light = 0.299 * red + 0.587 * green + 0.114 * blue;
  const shade = light < 0.2 ? "very dark" : light < 0.4 ? "dark" : light < 0.65 ? "middling" : "light";
  const spread = Math.max(...channels) - Math.min(...channels);
  if (isGrey || spread < 0.08) return `${shade} grey`;
  const turn = (Math.atan2(Math.sqrt(3) * (green - blue), 2 * red - green - blue) * 180) / Math.PI;
  const names = ["red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink"];
  const edges = [15, 45, 70, 160, 200, 260, 300, 345];
  const hue = names[edges.findIndex((edge) => (turn + 360) % 360 < edge)] || "red";
  return `${shade} ${hue}`;
}

const SAYS = {
  start: "Two pieces of one picture share something. The bar shows how much of it your picks reveal, in nats.",
  ceiling: "With K candidates nobody can reveal more than log K, however much the two pieces share:",
  whole: "Both views are the whole picture. The pick is easy, and nothing in the picture need be understood:",
  grey: "Without colour, the pieces share less, and both you and the encoder must look at shapes:",
  ball: "The others are those nearest to the query, in the encoder's eyes. Scores fall, even below zero, though the pieces share as much as before. The bar no longer measures information:",
  ring: "The others are near, but the nearest tenth is left out, since those may be as good as the partner. What does the bar say now?",
};
const LINKS = {
  ceiling: ["infonce", "InfoNCE"],
  whole: ["views", "View collisions"],
  grey: ["views", "View collisions"],
  ball: ["looseness", "VINCE"],
  ring: ["ring", "Rings and caves"],
};

function lesson(settings) {
  if (settings.others !== "random") return settings.others;
  if (!settings.crop) return "whole";
  if (settings.grey) return "grey";
  return settings.size > 4 ? "ceiling" : "start";
}

const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

/** Builds the game inside `root`. `options.kind` is what pages of the book end in; `options.seed` fixes the rounds. */
export function mount(root, data, options = {}) {
  const unit = unpack(data);
  const draw = mulberry32(options.seed ?? Math.floor(Math.random() * 4294967296));
  const settings = { size: 4, others: "random", crop: true, flip: true, grey: false };
  let picks, encoder, round, timer;

  const bytes = Uint8Array.from(atob(data.sheet), (letter) => letter.charCodeAt(0));
  const sheet = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  root.classList.add("clg");
  root.style.setProperty("--sheet", `url("${sheet}")`);

  const ask = element("p", { class: "clg-ask" });
  const query = element("div", { class: "clg-query" });
  const hand = element("div", { class: "clg-hand", role: "group" });
  const said = element("p", { class: "clg-said", "aria-live": "polite" });
  const why = element("p", { class: "clg-why" });
  const bars = element("div", { class: "clg-bars" });
  const share = element("p", { class: "clg-share" });
  const knobs = element("div", { class: "clg-knobs" });
  const about = element("details", {}, element("summary", {}, "How is this counted, and whose pictures are these?"));
  root.replaceChildren(ask, element("div", { class: "clg-table" }, query, hand), said, bars, why, share, knobs, about);

  function picture(view) {
    const [left, top, side] = data.squares[view.tile][view.square];
    const column = view.tile % data.columns;
    const row = Math.floor(view.tile / data.columns);
    const part = element("span", { class: "clg-view" });
    const percent = (start, all) => `${(100 * start) / (all - side)}%`;
    const rows = data.squares.length / data.columns;
    part.style.backgroundSize = `${(100 * data.columns * data.tile) / side}% ${(100 * rows * data.tile) / side}%`;
    part.style.backgroundPosition =
      `${percent(column * data.tile + left, data.columns * data.tile)} ${percent(row * data.tile + top, rows * data.tile)}`;
    if (view.variant & 1) part.style.transform = "scaleX(-1)";
    if (view.variant & 2) part.style.filter = "grayscale(1)";
    return part;
  }

  const describe = (view) => `mostly ${colourName(data.colours[view.tile][view.square], view.variant & 2)}`;

  function showRound() {
    round = deal(data, unit, settings, draw);
    const part = settings.crop ? "another piece of the framed picture" : "the framed picture";
    ask.textContent = `Which of these ${settings.size} is ${part}?`;
    query.replaceChildren(picture(round.query));
    query.setAttribute("role", "img");
    query.setAttribute("aria-label", `the piece that is asked about, ${describe(round.query)}`);
    hand.setAttribute("aria-label", `${settings.size} candidates`);
    hand.dataset.size = settings.size;
    const inHand = hand.contains(document.activeElement);
    hand.replaceChildren(
      ...round.candidates.map((view, place) => {
        const button = element("button", { type: "button", "aria-label": `candidate ${place + 1}, ${describe(view)}` });
        button.append(picture(view));
        button.addEventListener("click", () => pick(place));
        return button;
      }),
    );
    if (inHand) hand.firstChild.focus();
  }

  function pick(place) {
    if (timer) return;
    const isRight = place === round.partner;
    picks.add(isRight, settings.size);
    encoder.push(nats(round.scores, round.partner));
    const best = round.scores.indexOf(Math.max(...round.scores));
    hand.children[round.partner].classList.add("clg-right");
    if (!isRight) hand.children[place].classList.add("clg-wrong");
    const verdict = isRight ? "Right" : `No: it was candidate ${round.partner + 1}`;
    const its = best === round.partner ? "right" : "wrong";
    said.textContent = `${verdict}. ${picks.right} of ${picks.terms.length} right. The encoder was ${its}.`;
    showBars();
    timer = setTimeout(next, options.pause ?? (isRight ? 900 : 1700));
  }

  function next() {
    timer = undefined;
    showRound();
  }

  function bar(name, terms, kind) {
    const ceiling = Math.log(settings.size);
    const row = element("div", { class: `clg-bar clg-${kind}` }, element("span", {}, name));
    const track = element("span", { class: "clg-track" });
    const fill = element("span", { class: "clg-fill" });
    row.append(track, element("output", {}, terms.length ? inWords(summary(terms)) : "–"));
    track.append(fill);
    if (!terms.length) return row;
    const { mean, error } = summary(terms);
    const place = (value) => 100 * Math.min(1, Math.max(0, value / ceiling));
    fill.style.width = `${place(mean)}%`;
    if (Number.isFinite(error)) {
      const whisker = element("span", { class: "clg-whisker" });
      whisker.style.left = `${place(mean - error)}%`;
      whisker.style.width = `${place(mean + error) - place(mean - error)}%`;
      track.append(whisker);
    }
    return row;
  }

  function showBars() {
    const ceiling = number(Math.log(settings.size));
    const rounds = encoder.length;
    bars.replaceChildren(
      bar("You", picks.terms, "you"),
      bar("Trained encoder", encoder, "encoder"),
      element("p", { class: "clg-scale" },
        element("span", {}, "0 nats: chance"), element("span", {}, `log ${settings.size} = ${ceiling} nats: the ceiling`)),
    );
    const line = `I revealed ${inWords(summary(picks.terms))} of ${ceiling} nats in ${picks.terms.length} rounds; `
      + `the trained encoder ${inWords(summary(encoder))} in ${rounds}.`;
    share.replaceChildren();
    if (picks.terms.length < ROUNDS) return;
    const copy = element("button", { type: "button" }, "Copy");
    copy.addEventListener("click", () => {
      const done = () => (copy.textContent = "Copied");
      navigator.clipboard?.writeText(line).then(done, () => getSelection().selectAllChildren(share.firstChild));
    });
    share.append(element("span", {}, line), " ", copy);
  }

  function restart() {
    clearTimeout(timer);
    timer = undefined;
    picks = new Picks();
    encoder = [];
    said.textContent = "";
    const topic = lesson(settings);
    why.textContent = SAYS[topic];
    if (LINKS[topic]) {
      const [page, name] = LINKS[topic];
      why.append(" ", element("a", { href: `${page}.${options.kind || "html"}` }, name));
    }
    showRound();
    showBars();
  }

  function change(changes) {
    Object.assign(settings, changes);
    restart();
  }

  function choice(legend, name, offered) {
    const box = element("fieldset", {}, element("legend", {}, legend));
    for (const [value, label] of offered) {
      const input = element("input", { type: "radio", name: `clg-${name}`, value });
      input.checked = settings[name] === value;
      input.addEventListener("change", () => change({ [name]: value }));
      box.append(element("label", {}, input, ` ${label}`));
    }
    return box;
  }

  function toggles(legend, offered) {
    const box = element("fieldset", {}, element("legend", {}, legend));
    for (const [name, label] of offered) {
      const input = element("input", { type: "checkbox", name: `clg-${name}` });
      input.checked = settings[name];
      input.addEventListener("change", () => change({ [name]: input.checked }));
      box.append(element("label", {}, input, ` ${label}`));
    }
    return box;
  }

  const alone = element("button", { type: "button" }, "Let the encoder play 200 rounds");
  alone.addEventListener("click", () => {
    for (let i = 0; i < 200; i++) {
      const dealt = deal(data, unit, settings, draw);
      encoder.push(nats(dealt.scores, dealt.partner));
    }
    showBars();
  });
  knobs.append(
    choice("candidates", "size", [4, 16, 64].map((size) => [size, size])),
    toggles("the two views", [["crop", "are pieces"], ["flip", "one is mirrored"], ["grey", "one is grey"]]),
    choice("the others are", "others", [["random", "random"], ["ball", "the nearest (ball)"], ["ring", "near (ring)"]]),
    alone,
  );
  const credits = data.photographs.map(([what, credit]) => `${what} (${credit})`).join(", ");
  about.append(
    element("p", {}, "A pick is a score, too: it gives the picked piece the share of right picks so far, by Laplace's rule, and every other piece the same part of the rest. The bar is log K less the mean cross-entropy of the partner under these probabilities: the InfoNCE of your picks. Were the others drawn at random from all pieces, its expectation could not exceed the information that the two pieces share. The game never deals a second piece of the right picture, which can lift the bar. The encoder's bar is its own InfoNCE. ± is one standard error over the rounds."),
    element("p", {}, `The encoder was trained with InfoNCE and without labels, on ${data.made.training_tiles} overlapping pieces of the same photographs, those of the game among them: ${credits}.`),
  );
  restart();
  root.game = { data, change, pick, next, get settings() { return { ...settings }; }, get round() { return round; },
    get picks() { return picks; }, get encoder() { return encoder; },
    engine: { random: mulberry32, unpack, score, nats, deal, Picks, summary, colourName } };
  return root.game;
}
