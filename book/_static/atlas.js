// The page of the atlas: a filter above each choice of the grid, and a picker that shows one card at a time.
// Without this script the grid is whole and every card can be opened by hand.
window.addEventListener("DOMContentLoaded", () => {
  const grid = document.querySelector("table.atlas");
  if (!grid) return;
  const rows = [...grid.tBodies[0].rows];
  const select = (label, options, changed) => {
    const box = document.createElement("select");
    box.setAttribute("aria-label", label);
    for (const [value, text] of options) box.add(new Option(text, value));
    box.addEventListener("change", () => changed(box.value));
    return box;
  };

  const count = document.createElement("p");
  count.setAttribute("role", "status");
  const chosen = new Map();
  const filter = () => {
    for (const row of rows) row.hidden = [...chosen].some(([i, value]) => value && row.cells[i].textContent !== value);
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} methods`;
  };
  [...grid.tHead.rows[0].cells].forEach((head, i) => {
    if (!i) return;
    const values = [...new Set(rows.map((row) => row.cells[i].textContent))].sort();
    const box = select(`only ${head.textContent}`, [["", "all"], ...values.map((v) => [v, v])], (value) => {
      chosen.set(i, value);
      filter();
    });
    head.append(document.createElement("br"), box);
  });
  (grid.closest(".atlas-grid") || grid).before(count);
  filter();

  const links = rows.map((row) => row.cells[0].querySelector("a"));
  const cards = new Map();
  for (const link of links) {
    const target = document.getElementById(link.hash.slice(1));
    const card = target && (target.closest("details") || target.parentElement.querySelector("details"));
    if (card) cards.set(link.textContent, card);
  }
  const pick = (name) => {
    for (const [other, card] of cards) {
      card.hidden = Boolean(name) && other !== name;
      card.open = other === name;
    }
    picker.value = name;
  };
  const picker = select("method", [["", "all methods"], ...[...cards.keys()].map((name) => [name, name])], pick);
  const label = document.createElement("p");
  label.id = "pick";
  label.append("Show ", picker);
  const first = cards.values().next().value;
  if (first) first.before(label);
  const follow = () => {
    const link = links.find((one) => one.hash && one.hash === location.hash);
    if (!link) return;
    pick(link.textContent);
    label.scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  for (const link of links) link.addEventListener("click", () => setTimeout(follow));
  follow();
});
