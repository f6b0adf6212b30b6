"use strict";
// Asks the board for its state and writes it as text. Rows are kept by learner: what is open or in focus stays so.
const EVERY = 2000;  // ms
const byId = id => document.getElementById(id);
const rows = new Map();

function lasted(seconds) {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function made(learner) {
  const row = document.createElement("tr");
  const cells = {};
  for (const name of ["name", "lab", "exercise", "stuck", "tries", "passed", "says"]) {
    const cell = row.appendChild(document.createElement(name === "name" ? "th" : "td"));
    cell.className = ["stuck", "tries"].includes(name) ? `number ${name}` : name;
    cells[name] = cell;
  }
  cells.name.scope = "row";
  cells.who = cells.name.appendChild(document.createElement("bdi"));
  cells.asks = cells.name.appendChild(document.createElement("span"));
  cells.asks.className = "asks";
  cells.sentence = cells.says.appendChild(document.createElement("bdi"));
  cells.help = cells.says.appendChild(document.createElement("details"));
  cells.help.appendChild(document.createElement("summary")).textContent = "their code";
  cells.code = cells.help.appendChild(document.createElement("pre"));
  const entry = { row, cells };
  rows.set(learner, entry);
  return entry;
}

function show(learner) {
  const { row, cells } = rows.get(learner.learner) || made(learner.learner);
  row.className = learner.asks !== null ? "asking" : learner.quiet !== null ? "quiet" : learner.stuck !== null ? "stuck" : "";
  put(cells.who, learner.name);
  put(cells.asks, learner.asks !== null ? ` asks for help, ${lasted(learner.asks)}` : learner.quiet !== null ? ` quiet for ${lasted(learner.quiet)}` : "");
  put(cells.lab, learner.cell ? `${learner.lab} · ${learner.cell}` : learner.lab);
  put(cells.exercise, learner.exercise + (learner.status === "passed" ? " ✓" : ""));
  put(cells.stuck, learner.stuck === null ? "" : lasted(learner.stuck));
  put(cells.tries, learner.tries ? String(learner.tries) : "");
  cells.tries.dataset.unit = learner.tries === 1 ? "try" : "tries";
  put(cells.passed, String(learner.passed.length));
  cells.passed.title = learner.passed.join(", ");
  put(cells.sentence, learner.status === "failed" ? learner.sentence : "");
  cells.help.hidden = !learner.code;
  put(cells.code, learner.code);
  return row;
}

function draw(state) {
  const body = byId("learners");
  const wanted = state.learners.map(show);
  wanted.forEach((row, place) => { if (body.children[place] !== row) body.insertBefore(row, body.children[place] || null); });
  const here = new Set(state.learners.map(each => each.learner));
  for (const [learner, { row }] of rows) if (!here.has(learner)) { row.remove(); rows.delete(learner); }
  const count = state.learners.length;
  put(byId("sums"), count ? `${count} joined, ${state.asking} ${state.asking === 1 ? "asks" : "ask"} for help, ${state.stuck} ${state.stuck === 1 ? "is" : "are"} stuck.` + (state.refused ? ` ${state.refused} messages were not of this class.` : "") : "Nobody has joined yet.");
  byId("common").hidden = !state.commonest.length;
  byId("sentences").replaceChildren(...state.commonest.map(each => {
    const item = document.createElement("li");
    const many = item.appendChild(document.createElement("b"));
    many.textContent = `${each.count} × `;
    item.appendChild(document.createElement("code")).textContent = each.exercise;
    item.append(" ");
    item.appendChild(document.createElement("bdi")).textContent = each.sentence;
    return item;
  }));
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
}

async function ask() {
  try {
    const answer = await fetch("state");
    draw(await answer.json());
  } catch (problem) {
    put(byId("sums"), "The board has ended, or cannot be reached: what is below is how it was last.");
  }
  setTimeout(ask, EVERY);
}
ask();
