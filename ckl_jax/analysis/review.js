"use strict";
// Items are data, maybe hostile: they reach the page as text nodes and form values, never as HTML.
(() => {
  const BLANK = "<extra_id_0>", SHOWN = "____", ROWS = 50;
  const DONE = { keep: "kept", drop: "dropped", edit: "edited" };
  const data = JSON.parse(document.getElementById("items-data").textContent);
  const items = data.items, byKey = new Map(items.map((item) => [item.key, item]));
  const store = `ckl-review/${data.benchmark}`;
  const $ = (id) => document.getElementById(id);
  const state = { decisions: {}, shown: [], page: 0, row: 0, editing: false };

  // --- decisions

  const actionOf = (item) => (Object.hasOwn(state.decisions, item.key)
    ? state.decisions[item.key].action : "undecided");

  function load() {
    try {
      state.decisions = valid(JSON.parse(localStorage.getItem(store) || "{}"));
    } catch (error) {
      say("This browser stores nothing for this page: export before you close it.");
    }
  }

  // Decisions on items that are here, of an action that there is.
  function valid(decisions) {
    return Object.fromEntries(Object.entries(decisions).filter(
      ([key, d]) => byKey.has(key) && d && data.actions.includes(d.action)));
  }

  let waiting = 0;
  function save() {
    clearTimeout(waiting);
    waiting = setTimeout(flush, 200);
  }
  function flush() {
    clearTimeout(waiting);
    try {
      localStorage.setItem(store, JSON.stringify(state.decisions));
    } catch (error) {
      say("The browser cannot store more: export your decisions now.");
    }
  }

  function decide(item, decision) {
    if (decision) state.decisions[item.key] = decision;
    else delete state.decisions[item.key];
    save();
    progress();
  }

  // --- an edit

  const visible = (statement) => statement.replaceAll(BLANK, SHOWN);
  const lines = (text) => [...new Set(text.split("\n").map((s) => s.trim()).filter(Boolean))];

  // What is wrong with an edit, in a sentence; "" if nothing is.
  function wrong(item, edit) {
    const blanks = edit.statement.split(BLANK).length - 1;
    if (blanks !== 1) return `The statement has ${blanks} blanks; write one, as ${SHOWN}.`;
    if (!edit.answers.length) return "There is no answer.";
    if (!item.old.length) return "";
    if (!edit.old_answers.length) return "There is no old answer.";
    const old = new Set(edit.old_answers.map((a) => a.toLowerCase()));
    const both = edit.answers.find((a) => old.has(a.toLowerCase()));
    return both ? `${both} is an old answer too.` : "";
  }

  function editOf(form) {
    const text = (name) => form.elements[name].value.trim();
    return {
      action: "edit",
      statement: text("statement").replace(/_{3,}/g, BLANK),
      question: text("question"),
      answers: lines(text("answers")),
      old_answers: form.elements.old ? lines(text("old")) : [],
    };
  }

  // --- elements

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // `text` with the names in <mark>.
  function marked(text, names) {
    const found = names.filter((n) => n && text.includes(n)).sort((a, b) => b.length - a.length);
    if (!found.length) return [text];
    const escaped = found.map((n) => n.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    return text.split(new RegExp(`(${escaped})`)).filter(Boolean).map(
      (part) => (found.includes(part) ? element("mark", {}, part) : part));
  }

  function current(item) {  // the item as it is after an edit
    const d = state.decisions[item.key];
    return actionOf(item) !== "edit" ? item : {
      ...item, statement: d.statement, question: d.question, answers: d.answers, old: d.old_answers };
  }

  function answerCell(item) {
    const cell = element("td", { className: "answer" });
    if (item.old.length) cell.append(element("s", {}, item.old.join("; ")), element("br"));
    cell.append(element("b", {}, item.answers[0]));
    if (item.answers.length > 1) cell.append(element("small", {}, ` also ${item.answers.slice(1).join("; ")}`));
    return cell;
  }

  function evidenceCell(item, side) {
    const cell = element("td", { className: "evidence" });
    for (const row of item.evidence.filter((e) => e.side === side)) {
      const names = row.answer === "old" ? item.old : item.answers;
      const head = element("small", {}, [row.date, row.title, row.sentences && `${row.sentences} in all`]
        .filter(Boolean).join(" · ") + (item.old.length ? ` · ${row.answer} answer` : ""));
      cell.append(element("p", { title: row.document }, ...marked(row.sentence, names), element("br"), head));
    }
    if (!cell.childNodes.length) cell.append(element("small", {}, "none found"));
    return cell;
  }

  function statementCell(item) {
    const cell = element("td", { className: "statement" });
    const [before, ...after] = item.statement.split(BLANK);
    cell.append(before, element("span", { className: "blank" }, SHOWN), after.join(SHOWN));
    if (item.question) cell.append(element("br"), element("em", {}, item.question));
    const about = [item.probe, item.id, item.relation, item.date, item.note].filter(Boolean).join(" · ");
    cell.append(element("br"), element("small", {}, about));
    return cell;
  }

  function buttons(item) {
    const cell = element("td", { className: "buttons" });
    for (const [name, action] of Object.entries({ keep, drop, edit })) {
      if (!data.actions.includes(name)) continue;
      const pressed = actionOf(item) === name;
      const button = element("button", { type: "button", className: name, textContent: name });
      button.setAttribute("aria-pressed", pressed);
      button.addEventListener("click", (event) => {
        event.stopPropagation();  // the row would select itself again
        if (state.editing) return say("Save or cancel the edit first.");
        select(state.shown.indexOf(item));
        action();
      });
      cell.append(button);
    }
    return cell;
  }

  function rowOf(item) {
    const now = current(item);
    const row = element("tr", { className: actionOf(item) }, statementCell(now), answerCell(now),
      ...data.sides.map((side) => evidenceCell(now, side)), buttons(item));
    row.dataset.key = item.key;
    row.addEventListener("click", () => select(state.shown.indexOf(item)));
    return row;
  }

  function formOf(item) {
    const now = current(item);
    const field = (label, input) => element("label", {}, label, input);
    const area = (name, value, rows) => element("textarea", { name, value, rows });
    const form = element("form", {},
      field(`Statement, with one ${SHOWN}`, area("statement", visible(now.statement), 3)),
      field("Question", area("question", now.question, 2)),
      field("Answers, one a line, the first is trained on", area("answers", now.answers.join("\n"), 2)));
    if (item.old.length) form.append(field("Old answers, one a line", area("old", now.old.join("\n"), 2)));
    const error = element("p", { className: "error" });
    error.setAttribute("role", "alert");
    form.append(error, element("button", { type: "submit", textContent: "save (Ctrl+Enter)" }),
      element("button", { type: "button", className: "cancel", textContent: "cancel (Esc)" }));
    form.addEventListener("submit", (event) => { event.preventDefault(); submit(item, form, error); });
    form.querySelector(".cancel").addEventListener("click", stopEditing);
    return form;
  }

  function submit(item, form, error) {
    const decision = editOf(form);
    error.textContent = wrong(item, decision);
    if (error.textContent) return;
    state.editing = false;
    decide(item, decision);
    draw();
  }

  // --- the list

  function filter() {
    const [probe, action, relation] = ["probe", "state", "relation"].map((id) => $(id).value);
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    state.shown = items.filter((item) => (!probe || item.probe === probe)
      && (!relation || item.relation === relation) && inState(item, action)
      && words.every((word) => item.text.includes(word)));
    state.page = state.row = 0;
    state.editing = false;
    draw();
  }

  function inState(item, action) {
    if (action === "bare") return !item.evidence.length;
    return !action || actionOf(item) === action;
  }

  const pages = () => Math.max(1, Math.ceil(state.shown.length / ROWS));
  const selected = () => state.shown[state.page * ROWS + state.row];
  const rows = () => $("rows").children;

  function draw() {
    const start = state.page * ROWS;
    $("rows").replaceChildren(...state.shown.slice(start, start + ROWS).map(rowOf));
    $("place").textContent = state.shown.length
      ? `${(start + 1).toLocaleString("en")} to ${Math.min(start + ROWS, state.shown.length).toLocaleString("en")}`
        + ` of ${state.shown.length.toLocaleString("en")}` : "no item";
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page + 1 >= pages();
    highlight();
  }

  function redraw() {  // the selected row alone
    if (selected()) rows()[state.row].replaceWith(rowOf(selected()));
    highlight();
  }

  function highlight() {
    for (const [i, row] of [...rows()].entries()) row.classList.toggle("selected", i === state.row);
    rows()[state.row]?.scrollIntoView({ block: "nearest" });
  }

  function select(index) {  // in the filtered list
    if (state.editing || index < 0 || index >= state.shown.length) return;
    const page = Math.floor(index / ROWS), turned = page !== state.page;
    [state.page, state.row] = [page, index % ROWS];
    if (turned) draw(); else highlight();
  }

  const step = (by) => select(state.page * ROWS + state.row + by);
  const turn = (by) => select(Math.min(Math.max(0, state.page + by), pages() - 1) * ROWS);

  function nextUndecided() {
    const here = state.page * ROWS + state.row;
    const after = state.shown.findIndex((item, i) => i > here && actionOf(item) === "undecided");
    if (after < 0) say("No undecided item follows in this list."); else select(after);
  }

  // --- actions on the selected row

  const act = (decision) => { const item = selected(); if (item) { decide(item, decision); redraw(); step(1); } };
  const keep = () => act({ action: "keep" });
  const drop = () => act({ action: "drop" });
  function undo() { if (selected()) { decide(selected(), null); redraw(); } }
  function edit() {
    const item = selected();
    if (!item || state.editing || !data.actions.includes("edit")) return;
    state.editing = true;
    const cell = rows()[state.row].querySelector(".statement");
    cell.replaceChildren(formOf(item));
    cell.querySelector("textarea").focus();
  }
  function stopEditing() { state.editing = false; redraw(); }

  function progress() {
    const counts = { keep: 0, drop: 0, edit: 0 };
    for (const d of Object.values(state.decisions)) counts[d.action] += 1;
    const done = counts.keep + counts.drop + counts.edit;
    $("bar").value = done;
    $("progress").textContent = `${done.toLocaleString("en")} of ${items.length.toLocaleString("en")} decided: `
      + data.actions.map((name) => `${counts[name]} ${DONE[name]}`).join(", ");
  }

  function say(sentence) { $("message").textContent = sentence; }

  // --- export and import

  function exported() {
    return JSON.stringify({ format: data.format, benchmark: data.benchmark, decisions: state.decisions }, null, 1);
  }
  function download() {
    const url = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
    element("a", { href: url, download: "decisions.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    say(`decisions.json is exported; \`${data.command}\` applies it.`);
  }
  async function upload(file) {
    try {
      const value = JSON.parse(await file.text());
      if (value.format !== data.format) throw new Error(`its format is not ${data.format}`);
      const all = Object.keys(value.decisions), taken = valid(value.decisions);
      Object.assign(state.decisions, taken);
      save(); progress(); draw();
      const left = all.length - Object.keys(taken).length;
      say(`Decisions imported: ${Object.keys(taken).length}; on items that are not here: ${left}.`);
    } catch (error) {
      say(`${file.name} is not a file of decisions (${error.message}).`);
    }
  }

  // --- keys

  const KEYS = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    1: keep, 2: drop, 3: edit, e: edit, u: undo, n: nextUndecided,
    PageDown: () => turn(1), PageUp: () => turn(-1), "/": () => $("search").focus(),
  };

  document.addEventListener("keydown", (event) => {
    if (state.editing) {
      if (event.key === "Escape") stopEditing();
      if (event.key === "Enter" && event.ctrlKey) event.target.form?.requestSubmit();
      return;
    }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  // --- start

  function options(id, values) {
    $(id).append(...values.map((value) => element("option", { value, textContent: value })));
    $(id).addEventListener("change", filter);
  }

  for (const item of items) {
    item.text = [item.key, item.statement, item.question, item.note, ...item.answers, ...item.old]
      .join("\n").toLowerCase();
  }
  options("probe", [...new Set(items.map((item) => item.probe))]);
  options("relation", [...new Set(items.map((item) => item.relation).filter(Boolean))].sort());
  options("state", []);
  let typed = 0;
  $("search").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(filter, 150); });
  $("previous").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));
  $("export").addEventListener("click", download);
  $("import").addEventListener("change", (event) => { if (event.target.files[0]) upload(event.target.files[0]); event.target.value = ""; });
  addEventListener("pagehide", flush);
  document.addEventListener("visibilitychange", flush);
  $("bar").max = items.length;
  load();
  progress();
  filter();
  Object.assign(window, { review: { exported, state, flush } });  // for the console and tests
})();
