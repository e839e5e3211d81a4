"use strict";
// Tables that can be sorted, searched, filtered and saved. All that it shows is text of the page.
(() => {
  const LONG = 12, CHOICES = 12; // rows that are worth a search; values that are worth a choice
  const text = (cell) => [...cell.childNodes].filter((node) => node.className !== "below")
    .map((node) => node.textContent).join("").trim();
  // By what a column is filtered: the states below its answers, or its own text.
  const state = (cell) => cell.querySelector(".below")?.textContent ?? text(cell);
  const shown = (cell) => text(cell) || state(cell);
  const whole = (cell) => [...cell.childNodes].map((node) => node.textContent.trim()).join(" ").trim();
  const plain = (value) => Number(value.replaceAll(",", "").replace("%", "").replace("−", "-"));
  // By what a cell is sorted: 1.38M as 1,380,000, without marks, and the first of "1 / 2 (3)".
  const UNITS = { k: 1e3, M: 1e6, B: 1e9 };
  const number = (value) => {
    const found = value.match(/^([-+−]?[\d,.]+(?:e[-+]?\d+)?)\s*([kMB]?)\s*[%*]*(?:\s+\/.*|\s*\(.*\))?$/);
    return found ? plain(found[1]) * (UNITS[found[2]] ?? 1) : plain(value);
  };
  const make = (name, properties) => Object.assign(document.createElement(name), properties);

  // Numbers by value, and what is none below all of them, also where the largest comes first.
  function compare(a, b, sign = 1) {
    const [x, y] = [a, b].map((value) => (value === "" ? NaN : number(value)));
    if (Number.isNaN(x) && Number.isNaN(y)) return sign * a.localeCompare(b);
    return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y);
  }

  function sortable(heads, body, rows) {
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const sign = head.ariaSort === "ascending" ? -1 : 1;
        heads.forEach((other) => { other.ariaSort = null; });
        head.ariaSort = sign > 0 ? "ascending" : "descending";
        rows.sort((a, b) => compare(shown(a.cells[column]), shown(b.cells[column]), sign));
        body.append(...rows);
      });
    });
  }

  function searchable(bar, heads, rows) {
    const search = make("input", { type: "search", placeholder: "words", ariaLabel: "search" });
    const said = rows.map((row) => [...row.cells].map(whole).join("\n").toLowerCase());
    const count = make("span", {});
    const choices = heads.flatMap((head, column) => {
      const values = [...new Set(rows.map((row) => state(row.cells[column])))].sort((a, b) => compare(a, b));
      if (values.length < 2 || values.length > CHOICES || 4 * values.length > rows.length) return [];
      const choice = make("select", { ariaLabel: head.textContent });
      choice.append(make("option", { value: "", textContent: `${head.textContent}: any` }),
        ...values.map((value) => make("option", { value: `=${value}`, textContent: value || "–" })));
      return [[choice, column]];
    });
    const show = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row) => {
        const fits = words.every((word) => said[row.dataset.place].includes(word))
          && choices.every(([choice, column]) => !choice.value
            || choice.value === `=${state(row.cells[column])}`);
        row.hidden = !fits;
        shown += fits;
      });
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    };
    rows.forEach((row, place) => { row.dataset.place = place; });
    bar.append(search, ...choices.map(([choice]) => choice), count);
    bar.addEventListener("input", show);
    show();
  }

  // A spreadsheet would run what begins with a sign as a formula.
  const safe = (value) => (/^[=+@-]/.test(value) && Number.isNaN(plain(value)) ? `'${value}` : value);
  const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

  // What stands below a cell's text, such as an interval or a state, is a column of its own.
  function save(name, heads, rows) {
    const below = (cell) => cell.querySelector(".below")?.textContent.trim() ?? "";
    const two = heads.map((_, column) => rows.some((row) => below(row.cells[column])));
    const lines = [heads.flatMap(({ textContent: head }, column) =>
      [head, `${head} (below)`].slice(0, two[column] ? 2 : 1).map(quoted)),
      ...rows.filter((row) => !row.hidden).map((row) => [...row.cells].flatMap((cell, column) =>
        (two[column] ? [text(cell), below(cell)] : [whole(cell)]).map((value) => quoted(safe(value)))))];
    const link = make("a", { download: name });
    link.href = URL.createObjectURL(new Blob([lines.join("\n"), "\n"], { type: "text/csv" }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // Shows the rows of a table that is wider than the page as cards, each cell with its header.
  function fit(table, heads, rows) {
    table.classList.remove("cards");
    if (table.scrollWidth <= table.parentElement.clientWidth) return;
    rows.forEach((row) => heads.forEach((head, column) => {
      row.cells[column].dataset.label = head.textContent;
    }));
    table.classList.add("cards");
  }

  document.querySelectorAll("table").forEach((table, number) => {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], rows = [...body.rows];
    const bar = make("div", { className: "bar" });
    const csv = make("button", { type: "button", textContent: "CSV", title: "save these rows" });
    const place = table.closest("section")?.id || "table";
    csv.addEventListener("click", () => save(`${place}-${number + 1}.csv`, heads, rows));
    if (rows.length > LONG) searchable(bar, heads, rows);
    if (rows.length > 2) sortable(heads, body, rows);
    bar.append(csv);
    table.parentElement.before(bar);
    fit(table, heads, rows);
    addEventListener("resize", () => fit(table, heads, rows));
  });
})();
