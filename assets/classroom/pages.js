"use strict";
// Sorting and filtering of the class page. Without it the page is whole, in the order of the class list.
const tables = [...document.querySelectorAll("table.matrix")];

function sortBy(table, head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const column = head.cellIndex, numbers = head.dataset.sort !== "text";
  const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
  const order = (one, other) => numbers ? key(one) - key(other) : key(one).localeCompare(key(other));
  const rows = [...table.tBodies[0].rows].sort((one, other) => (down ? -1 : 1) * order(one, other));
  table.tBodies[0].append(...rows);
}

for (const table of tables) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "↕";
    button.setAttribute("aria-label", `sort by ${head.textContent.trim()}`);
    button.addEventListener("click", () => sortBy(table, head));
    head.append(" ", button);
  }
}

const which = document.getElementById("which"), called = document.getElementById("called");

function filter() {
  const wanted = called.value.trim().toLowerCase();
  let shown = 0, all = 0;
  for (const table of tables) {
    for (const row of table.tBodies[0].rows) {
      const has = !which.value || row.dataset.has.split(" ").includes(which.value);
      row.hidden = !(has && row.cells[0].textContent.toLowerCase().includes(wanted));
      all += 1;
      shown += !row.hidden;
    }
  }
  document.getElementById("shown").textContent = shown === all ? "" : `${shown} of ${all} rows`;
}

if (which) {
  which.form.hidden = false;
  which.form.addEventListener("submit", event => event.preventDefault());
  which.addEventListener("change", filter);
  called.addEventListener("input", filter);
}
