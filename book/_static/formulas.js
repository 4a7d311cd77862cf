// A formula that is wider than its place is set smaller, down to half; what is wider still can be pushed sideways.
window.addEventListener("load", async () => {
  if (!window.MathJax || !MathJax.startup) return;
  await MathJax.startup.promise;
  const sizes = new WeakMap();
  const room = (place) => {
    const style = getComputedStyle(place);
    return place.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };
  const fit = (root) => {
    const formulas = [...root.querySelectorAll("mjx-container")];
    for (const formula of formulas) {
      if (!sizes.has(formula)) sizes.set(formula, formula.style.fontSize);
      formula.style.fontSize = sizes.get(formula);
    }
    // all is measured before anything is changed: one layout, not one for each formula
    const measured = formulas.map((formula) => {
      const place = formula.closest("td, div.math, li, dd, p");
      const share = place && room(place) / formula.querySelector("mjx-math").getBoundingClientRect().width;
      return [formula, share, parseFloat(getComputedStyle(formula).fontSize)];
    });
    for (const [formula, share, size] of measured)
      if (share > 0 && share < 1) formula.style.setProperty("font-size", `${Math.max(0.5, 0.98 * share) * size}px`, "important");
  };
  const page = document.querySelector("article");
  fit(page);
  for (const box of page.querySelectorAll("details")) box.addEventListener("toggle", () => box.open && fit(box));
  window.addEventListener("resize", () => fit(page));
});
