// Tables that a reader can filter: the methods of the atlas, the statements of the errata page, the claims of the results.
// A picker shows one card of the atlas at a time. A link to a folded place opens it. Without this script the tables are whole
// and everything folded can be opened by hand.
window.addEventListener("DOMContentLoaded", () => {
  const select = (label, options, changed) => {
    const box = document.createElement("select");
    box.setAttribute("aria-label", label);
    for (const [value, text] of options) box.add(new Option(text, value));
    box.addEventListener("change", () => changed(box.value));
    return box;
  };

  // A bar with a box for each fact of the rows, a box for a word, and the number of rows that are left. While something is
  // chosen, folded tables with matching rows are open and the others are hidden. Returns what to call to show all rows again.
  const searchable = (tables, noun, facts, place) => {
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
    const around = (fold) => fold !== place && fold.contains(place); // it holds the bar, too
    const folds = new Set(tables.map((table) => table.closest("details")).filter((fold) => fold && !around(fold)));
    const conditions = new Map();
    const count = document.createElement("p");
    count.setAttribute("role", "status");
    const apply = () => {
      for (const row of rows) row.hidden = [...conditions.values()].some((holds) => !holds(row));
      for (const table of tables) table.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
      for (const fold of folds) {
        fold.hidden = [...fold.querySelectorAll("table")].every((table) => table.hidden);
        fold.open = conditions.size > 0 && !fold.hidden;
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} ${noun}`;
    };
    const set = (name, holds) => {
      if (holds) conditions.set(name, holds);
      else conditions.delete(name);
      apply();
    };
    const bar = document.createElement("div");
    bar.className = "ledger-filter";
    const boxes = Object.entries(facts).map(([name, value]) => {
      const values = [...new Set(rows.map(value))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      const options = [["", "all"], ...values.map((one) => [one, one])];
      const box = select(`only ${name}`, options, (chosen) => set(name, chosen && ((row) => value(row) === chosen)));
      const label = document.createElement("label");
      label.append(`${name} `, box);
      bar.append(label);
      return box;
    });
    const word = document.createElement("input");
    word.type = "search";
    word.placeholder = "word";
    word.setAttribute("aria-label", "only with this word");
    word.addEventListener("input", () => {
      const wanted = word.value.trim().toLowerCase();
      set("word", wanted && ((row) => row.textContent.toLowerCase().includes(wanted)));
    });
    bar.append(word, count);
    place.before(bar);
    apply();
    return () => {
      for (const box of [...boxes, word]) box.value = "";
      conditions.clear();
      apply();
    };
  };

  // The place that the address names after its #.
  const linked = () => location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));

  const methods = [...document.querySelectorAll("table.atlas")];
  if (methods.length) {
    const names = [...methods[0].tHead.rows[0].cells].map((cell) => cell.textContent);
    const facts = { paper: (row) => row.cells[0].textContent.split("/")[0] };
    names.forEach((name, i) => {
      if (i) facts[name] = (row) => row.cells[i].textContent;
    });
    searchable(methods, "methods", facts, methods[0].closest("details") || methods[0]);

    const links = methods.flatMap((table) => [...table.tBodies[0].rows].map((row) => row.cells[0].querySelector("a")));
    const cards = new Map();
    for (const link of links) {
      const card = document.getElementById(link.hash.slice(1));
      if (card) cards.set(link.textContent, card);
    }
    const groups = new Set([...cards.values()].map((card) => card.parentElement.closest("details")).filter(Boolean));
    const pick = (name) => {
      for (const [other, card] of cards) {
        card.hidden = Boolean(name) && other !== name;
        card.open = other === name;
      }
      for (const group of groups) {
        group.hidden = Boolean(name) && !group.contains(cards.get(name));
        group.open = Boolean(name) && !group.hidden;
      }
      picker.value = name;
    };
    const picker = select("method", [["", "all methods"], ...[...cards.keys()].map((name) => [name, name])], pick);
    const label = document.createElement("p");
    label.id = "pick";
    label.append("Show ", picker);
    const [first] = groups;
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
  }

  // The library's reference: a folded module says what names it has.
  for (const fold of document.querySelectorAll("article details:has(dl.py)")) {
    const names = [...fold.querySelectorAll(":scope dl.py > dt .descname")].filter((name) => !name.closest("dd"));
    const list = document.createElement("span");
    list.className = "members";
    list.textContent = names.map((name) => name.textContent).join(", ");
    fold.querySelector("summary .sd-summary-text").append(list);
  }

  const claims = document.querySelector("#claims-table table");
  if (claims) {
    const facts = {
      paper: (row) => row.cells[1].textContent.split(" ")[0],
      verdict: (row) => row.cells[0].textContent.replace(/ \(.*|:.*|, on .*/, ""),
      profile: (row) => row.cells[row.cells.length - 1].textContent,
    };
    searchable([claims], "claims", facts, document.querySelector("#claims-table").firstChild);
  }

  const statements = [...document.querySelectorAll("table.ledger")];
  const entryFacts = Object.fromEntries(["paper", "section", "verdict", "severity", "decided"].map((name) => [
    name, (row) => row.querySelector("span[data-paper]").dataset[name]]));
  const showAll = statements.length
    ? searchable(statements, "statements", entryFacts, statements[0].closest("details") || statements[0])
    : () => {};

  // A link to a folded place opens what it is folded in; an entry of the errata is shown whatever was chosen.
  const open = () => {
    const place = linked();
    for (const row of document.querySelectorAll("table.ledger tr.linked")) row.classList.remove("linked");
    if (!place || !place.closest("details")) return;
    const row = place.closest("table.ledger tr");
    if (row) {
      showAll();
      row.classList.add("linked");
    }
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    (row || place).scrollIntoView({ block: row ? "center" : "start" });
  };
  window.addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("article a[href^='#']");
    if (link && link.hash === location.hash) setTimeout(open);  // followed twice: the address does not change
  });
  open();
});
