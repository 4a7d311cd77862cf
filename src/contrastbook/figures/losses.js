// What the playground and the game both compute, in float64.

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
