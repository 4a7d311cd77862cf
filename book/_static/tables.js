// Tables that a reader can filter, and lists that a reader can open: the grid of the atlas, the statements of the errata page, the claims of the results. A picker shows one card
// of the atlas at a time. Without this script the tables are whole and every card can be opened by hand.
window.addEventListener("DOMContentLoaded", () => {
  const select = (label, options, changed) => {
    const box = document.createElement("select");
    box.setAttribute("aria-label", label);
    for (const [value, text] of options) box.add(new Option(text, value));
    box.addEventListener("change", () => changed(box.value));
    return box;
  };

  // Conditions on rows, by name: a row that fails one is hidden, and `count` says how many are left.
  const filtering = (rows, noun, after = () => {}) => {
    const count = document.createElement("p");
    count.setAttribute("role", "status");
    const conditions = new Map();
    const apply = () => {
      for (const row of rows) row.hidden = [...conditions.values()].some((holds) => !holds(row));
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} ${noun}`;
      after();
    };
    const set = (name, holds) => {
      if (holds) conditions.set(name, holds);
      else conditions.delete(name);
      apply();
    };
    // A box with the values that rows have, and "all".
    const choice = (name, value, order = (a, b) => a.localeCompare(b, "en", { numeric: true })) => {
      const values = [...new Set(rows.map(value))].sort(order);
      return select(`only ${name}`, [["", "all"], ...values.map((v) => [v, v])], (chosen) =>
        set(name, chosen && ((row) => value(row) === chosen)));
    };
    return { count, set, choice, apply };
  };

  const grid = document.querySelector("table.atlas");
  if (grid) {
    const rows = [...grid.tBodies[0].rows];
    const filter = filtering(rows, "methods");
    [...grid.tHead.rows[0].cells].forEach((head, i) => {
      if (i) head.append(document.createElement("br"), filter.choice(head.textContent, (row) => row.cells[i].textContent));
    });
    (grid.closest(".atlas-grid") || grid).before(filter.count);
    filter.apply();

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
  }

  // The library's reference: the names of a module are one line; it opens, also by a link to a name.
  const reference = [...document.querySelectorAll("article section > dl.py")];
  for (const first of reference.filter((one) => !one.previousElementSibling?.matches("dl.py"))) {
    const members = [first];
    while (members.at(-1).nextElementSibling?.matches("dl.py")) members.push(members.at(-1).nextElementSibling);
    const [fold, summary] = [document.createElement("details"), document.createElement("summary")];
    const names = members.map((one) => one.querySelector("dt .descname")?.textContent).filter(Boolean);
    summary.textContent = `${names.length === 1 ? "1 name" : `${names.length} names`}: ${names.join(", ")}`;
    fold.className = "members";
    first.before(fold);
    fold.append(summary, ...members);
  }
  if (reference.length) {
    const show = () => {
      const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const fold = place && place.closest("details.members");
      if (!fold) return;
      fold.open = true;
      place.scrollIntoView();
    };
    window.addEventListener("hashchange", show);
    show();
  }

  const claims = document.querySelector("#claims-table table");
  if (claims) {
    const rows = [...claims.tBodies[0].rows];
    const filter = filtering(rows, "claims");
    const bar = document.createElement("div");
    bar.className = "ledger-filter";
    const facts = {
      paper: (row) => row.cells[1].textContent.split(" ")[0],
      verdict: (row) => row.cells[0].textContent.replace(/ \(.*|:.*|, on .*/, ""),
      profile: (row) => row.cells[row.cells.length - 1].textContent,
    };
    for (const [name, value] of Object.entries(facts)) {
      const label = document.createElement("label");
      label.append(`${name} `, filter.choice(name, value));
      bar.append(label);
    }
    bar.append(filter.count);
    document.querySelector("#claims-table").prepend(bar);
    filter.apply();
  }

  const tables = [...document.querySelectorAll("table.ledger")];
  if (tables.length) {
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
    const facts = new Map(rows.map((row) => [row, row.querySelector("span[data-paper]").dataset]));
    const emptied = () => {
      for (const table of tables) table.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
    };
    const filter = filtering(rows, "statements", emptied);
    const bar = document.createElement("div");
    bar.className = "ledger-filter";
    const boxes = ["paper", "section", "verdict", "severity", "decided"].map((name) => {
      const label = document.createElement("label");
      const box = filter.choice(name, (row) => facts.get(row)[name]);
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
      filter.set("word", wanted && ((row) => row.textContent.toLowerCase().includes(wanted)));
    });
    bar.append(word, filter.count);
    (tables[0].closest("section") || tables[0]).before(bar);
    filter.apply();

    // A link to an entry shows it, whatever was chosen.
    const follow = () => {
      const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const row = place && place.closest("table.ledger tr");
      for (const other of rows) other.classList.toggle("linked", other === row);
      if (!row) return;
      for (const box of boxes) {
        box.value = "";
        box.dispatchEvent(new Event("change"));
      }
      word.value = "";
      word.dispatchEvent(new Event("input"));
      row.scrollIntoView({ block: "center" });
    };
    window.addEventListener("hashchange", follow);
    follow();
  }
});
