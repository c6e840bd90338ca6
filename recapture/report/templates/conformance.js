"use strict";
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const details = read("details"), claimTexts = read("claims-data");
const matrix = document.querySelector(".matrix");
const rows = [...document.querySelectorAll("tr.row")];
const make = (tag, text, kind) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
};

// What a cell shows when it is opened.
const line = (table, name, value) => {
  const row = table.insertRow();
  row.append(make("th", name));
  const cell = row.insertCell();
  for (const one of Array.isArray(value) ? value : [value]) {
    const part = make("div");
    part.append(one instanceof Node ? one : make("code", one));
    cell.append(part);
  }
};
function claimText(one) {
  const known = claimTexts[one.id] || {}, box = make("span");
  const status = one.holds ? "reproduced" : one.holds === false ? "not reproduced" : "not runnable here";
  box.append(make("code", one.expected), ": " + status + ". " + (known.sentence || ""));
  if (known.link) {
    const link = make("a", "source");
    link.href = known.link;
    link.rel = "noreferrer";
    box.append(" ", link);
  }
  return box;
}
const difference = (one) =>
  one.where + ": " + one.kind + (one.far ? " (" + one.far + ")" : "") + (one.detail ? ": " + one.detail : "");
function card(record) {
  const box = make("div", undefined, "card");
  box.append(make("b", record.case + "::" + record.compiler, "mono"));
  const table = make("table");
  const at = [record.phase, record.input].filter(Boolean).join(" on ");
  line(table, "verdict", record.verdict + (at ? " (" + at + ")" : ""));
  for (const one of record.differences || []) line(table, one.input, difference(one));
  if (record.error) line(table, record.error.type, record.error.message);
  if (record.reason) line(table, "reason", record.reason);
  if (record.stage) line(table, "guilty", record.stage);
  const counts = ["graphs", "graph_breaks", "recompiles"].filter((name) => name in record);
  if (counts.length) line(table, "counted", counts.map((name) => name.replace("_", " ") + " " + record[name]).join(", "));
  if (record.break_reasons) line(table, "graph breaks", record.break_reasons);
  if (record.noted) line(table, "noted", record.noted.map((one) => one.input + ": " + difference(one)));
  if (record.notes) line(table, "remarks", record.notes);
  for (const one of record.claims || []) line(table, "claim " + one.id, claimText(one));
  if (record.error) line(table, "fingerprint", record.error.fingerprint);
  box.append(table);
  return box;
}
function close(row) {
  if (row.nextElementSibling && row.nextElementSibling.classList.contains("detail")) row.nextElementSibling.remove();
  for (const button of row.querySelectorAll("[aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
}
function open(button) {
  const row = button.closest("tr"), detail = make("tr", undefined, "detail"), cell = detail.insertCell();
  close(row);
  button.setAttribute("aria-expanded", "true");
  cell.colSpan = row.cells.length;
  cell.append(card(details[button.dataset.at]));
  row.after(detail);
}
matrix.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  current(button);
  if (button.getAttribute("aria-expanded") === "true") close(button.closest("tr"));
  else open(button);
});

// One stop of the Tab key for the whole matrix; arrows, Home and End move inside it, Escape closes a cell.
const buttons = [...matrix.querySelectorAll("button")];
let focused = null;
function current(button) {
  if (focused) focused.tabIndex = -1;
  focused = button;
  if (button) button.tabIndex = 0;
}
for (const button of buttons) button.tabIndex = -1;
matrix.addEventListener("keydown", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const row = button.closest("tr"), column = button.closest("td").cellIndex;
  const move = (candidates) => {
    const next = candidates.find(Boolean);
    if (!next) return;
    event.preventDefault();
    current(next);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const inRow = [...row.querySelectorAll("button")], here = inRow.indexOf(button);
  const shown = rows.filter((one) => !one.hidden), place = shown.indexOf(row);
  const inColumn = (some) => some.map((one) => one.cells[column].querySelector("button"));
  if (event.key === "ArrowRight") move([inRow[here + 1]]);
  else if (event.key === "ArrowLeft") move([inRow[here - 1]]);
  else if (event.key === "ArrowDown") move(inColumn(shown.slice(place + 1)));
  else if (event.key === "ArrowUp") move(inColumn(shown.slice(0, place).reverse()));
  else if (event.key === "Home") move([inRow[0]]);
  else if (event.key === "End") move([inRow[inRow.length - 1]]);
  else if (event.key === "Escape") close(row);
});

// The filter: all words must be of one cell, whose kind is among the ticked ones.
const texts = details.map(({ error = {}, differences = [], noted = [], claims = [], ...one }) => [
  one.case, one.compiler, one.verdict, one.stage, error.type, error.message, one.reason, ...[...differences, ...noted].flatMap(Object.values),
  one.notes, one.break_reasons, ...claims.map((claim) => claim.id)].join(" ").toLowerCase());
const cells = rows.map((row) => [...row.querySelectorAll("button")]);
const kinds = [...document.querySelectorAll("[data-kind]")], field = document.getElementById("filter");
const kindOfDifference = document.getElementById("difference");
function ofKind(record) {
  const [where, kind] = kindOfDifference ? kindOfDifference.value.split(" ") : [""];
  return !where || (record[where] || []).some((one) => one.kind === kind);
}
function filter() {
  const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean), ticked = kinds.filter((one) => one.checked);
  let shown = 0;
  rows.forEach((row, place) => {
    const keep = cells[place].some((cell) =>
      wanted.every((word) => texts[cell.dataset.at].includes(word)) && ofKind(details[cell.dataset.at]) &&
      (!ticked.length || ticked.some((one) => cell.classList.contains(one.dataset.kind))));
    if (!keep) close(row);
    row.hidden = !keep;
    shown += keep;
  });
  for (const body of document.querySelectorAll(".matrix tbody"))
    body.hidden = ![...body.querySelectorAll("tr.row")].some((row) => !row.hidden);
  document.getElementById("shown").textContent = shown === rows.length ? rows.length + " cases" : shown + " of " + rows.length + " cases";
  const first = rows.find((row) => !row.hidden);
  if (!focused || focused.closest("tr").hidden) current(first ? first.querySelector("button") : null);
}
field.addEventListener("input", filter);
for (const one of [...kinds, kindOfDifference]) if (one) one.addEventListener("change", filter);
filter();

// #suite::name::compiler opens that cell, so that a link can point at it.
function openTarget() {
  let target = "";
  try { target = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  const place = target ? details.findIndex((one) => one.case + "::" + one.compiler === target) : -1;
  if (place < 0) return;
  const button = matrix.querySelector('[data-at="' + place + '"]');
  if (button.closest("tr").hidden) {
    field.value = "";
    for (const one of kinds) one.checked = false;
    if (kindOfDifference) kindOfDifference.value = "";
    filter();
  }
  open(button);
  current(button);
  button.focus({ preventScroll: true });
  button.scrollIntoView({ block: "center", inline: "nearest" });
}
addEventListener("hashchange", openTarget);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.chip");
  if (link && link.hash === location.hash) openTarget();
});
openTarget();
