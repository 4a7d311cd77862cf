// What the playground and the game both compute, in float64, and how both draw.

/** log Σ exp of the scores, of those that `inside` marks where it is given. */
function logSumExp(scores, inside) {
  let top = -Infinity;
  for (let j = 0; j < scores.length; j++) if ((!inside || inside[j]) && scores[j] > top) top = scores[j];
  let sum = 0;
  for (let j = 0; j < scores.length; j++) if (!inside || inside[j]) sum += Math.exp(scores[j] - top);
  return top + Math.log(sum);
}

/** log(eᵃ + eᵇ) */
const logAddExp = (a, b) => (a > b ? a + Math.log1p(Math.exp(b - a)) : b + Math.log1p(Math.exp(a - b)));

/** Random numbers in [0, 1) from a state of 32 bits: mulberry32. */
function mulberry32(state) {
  let a = state >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The values in an order that the random numbers choose (Fisher and Yates). */
function shuffle(values, uniform) {
  const order = [...values];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(uniform() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
