"use strict";
// pan, zoom, search and choose in the graph; sort and filter tables. Nothing here reads or writes markup: text and classes only.
const one = (s) => document.querySelector(s);
const WIDEST = 760; // of the part of the graph that is shown at first and around a node that was searched
const all = (s, of = document) => Array.from(of.querySelectorAll(s));

function graph() {
  const drawing = one("#graph");
  if (!drawing) return;
  const start = drawing.getAttribute("viewBox").split(" ").map(Number);
  let view = [...start], chosen = null, held = null, moved = false;
  const NEAR = Math.min(WIDEST, drawing.clientWidth || WIDEST); // so that words are at least as large as they are drawn
  const near = NEAR * (drawing.clientHeight / drawing.clientWidth || 1);
  if (view[3] > near || view[2] > NEAR) view = [-NEAR / 2, view[1], NEAR, near];
  const draw = () => drawing.setAttribute("viewBox", view.join(" "));
  const scale = () => Math.max(view[2] / drawing.clientWidth, view[3] / drawing.clientHeight);
  const zoom = (by, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) => {
    view = [x - (x - view[0]) * by, y - (y - view[1]) * by, view[2] * by, view[3] * by];
    draw();
  };
  const place = (box) => box.getAttribute("transform").match(/-?\d+/g).map(Number);
  const centre = (box) => {
    const [x, y] = place(box);
    const wide = NEAR, tall = wide * (drawing.clientHeight / drawing.clientWidth);
    view = [x + 86 - wide / 2, y + 20 - tall / 2, wide, tall];
    draw();
  };
  const show = (box, yes) => {
    const detail = one("#d" + box.id.slice(1));
    detail.hidden = !yes;
    for (const rows of all(detail.dataset.rows)) rows.hidden = !yes;
  };
  const choose = (box) => {
    link("node", one("#d" + box.id.slice(1)).querySelector("h3").textContent);
    if (chosen) { chosen.classList.remove("chosen"); show(chosen, false); }
    chosen = box;
    box.classList.add("chosen");
    show(box, true);
    one("#hint").hidden = true;
  };
  draw();
  drawing.addEventListener("wheel", (e) => {
    e.preventDefault();
    const box = drawing.getBoundingClientRect(), s = scale();
    const x = view[0] + view[2] / 2 + (e.clientX - box.left - box.width / 2) * s;
    const y = view[1] + view[3] / 2 + (e.clientY - box.top - box.height / 2) * s;
    zoom(e.deltaY > 0 ? 1.15 : 1 / 1.15, x, y);
  }, { passive: false });
  drawing.addEventListener("pointerdown", (e) => { held = [e.clientX, e.clientY]; moved = false; });
  addEventListener("pointermove", (e) => {
    if (!held) return;
    const dx = e.clientX - held[0], dy = e.clientY - held[1];
    if (!moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    moved = true;
    view[0] -= dx * scale(); view[1] -= dy * scale();
    held = [e.clientX, e.clientY];
    draw();
  });
  addEventListener("pointerup", () => { held = null; });
  for (const box of all(".box")) {
    box.addEventListener("choose", () => { choose(box); centre(box); });
    box.addEventListener("click", () => { if (!moved) choose(box); });
    box.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(box); } });
  }
  one("#in").addEventListener("click", () => zoom(1 / 1.4));
  one("#out").addEventListener("click", () => zoom(1.4));
  one("#fit").addEventListener("click", () => { view = [...start]; draw(); });
  let found = [], next = 0;
  one("#search").addEventListener("input", (e) => {
    const word = e.target.value.toLowerCase();
    found = [];
    for (const box of all(".box")) {
      const detail = one("#d" + box.id.slice(1));
      const hit = word !== "" && (detail.querySelector("h3").textContent + " " + detail.querySelector("p").textContent).toLowerCase().includes(word);
      box.classList.toggle("found", hit);
      if (hit) found.push(box);
    }
    next = 0;
    one("#hits").textContent = word === "" ? "" : found.length + " found";
    if (found.length) centre(found[0]);
  });
  one("#search").addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || !found.length) return;
    choose(found[next]); centre(found[next]);
    next = (next + 1) % found.length;
  });
}

// Deep links: #node=NAME chooses a node, #offload=NAME a row of the table of offloads and marks its nodes in the graph.
const link = (kind, name) => history.replaceState(null, "", "#" + kind + "=" + encodeURIComponent(name));

function offload(name) {
  const row = all("#offloads tbody tr").find((r) => r.cells[0].textContent === name);
  if (!row) return;
  for (const r of all("tr.chosen")) r.classList.remove("chosen");
  row.classList.add("chosen");
  link("offload", name);
  const told = all(".rows").filter((r) => (r.querySelector("dd") || r).textContent.startsWith(name + ":")).map((r) => "#" + r.id);
  for (const box of all(".box")) {
    const rows = one("#d" + box.id.slice(1)).dataset.rows.split(",");
    box.classList.toggle("found", told.some((t) => rows.includes(t)));
  }
}

function follow() {
  const [kind, name] = location.hash.slice(1).split("=");
  if (name === undefined) {
    const section = /^[a-z]+$/.test(kind) && one("#" + kind), fold = section && section.querySelector("details");
    if (fold) fold.open = true;
    if (section) section.scrollIntoView();
    return;
  }
  let wanted = "";
  try { wanted = decodeURIComponent(name); } catch { return; }
  if (kind === "offload") {
    offload(wanted);
    (one("tr.chosen") || one("#offloads")).scrollIntoView({ block: "center" });
  } else if (kind === "node") {
    const detail = all(".detail").find((d) => d.querySelector("h3").textContent === wanted);
    if (!detail) return;
    one("#n" + detail.id.slice(1)).dispatchEvent(new Event("choose"));
    one("#model").scrollIntoView();
  }
}

// What scrolls can be reached by keyboard, and says what it is.
function scrollers() {
  for (const [n, e] of all(".wide, .plot, #panel").entries()) {
    if (e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight) continue;
    e.tabIndex = 0;
    e.setAttribute("role", "region");
    e.setAttribute("aria-label", e.id === "panel" ? "the chosen node" : e.className === "plot" ? "drawing " + n + ", scrolls" : "table " + n + ", scrolls");
  }
}

function figure(text) {
  const number = parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(number) ? -Infinity : number;
}

function tables() {
  for (const table of all("table")) {
    const body = table.querySelector("tbody");
    for (const head of all("th", table)) {
      const k = head.cellIndex;
      head.classList.add("sort");
      head.tabIndex = 0;
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        all("th", table).forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = all("tr", body), numeric = rows.some((r) => r.cells[k].classList.contains("n"));
        rows.sort((a, b) => {
          const [x, y] = [a, b].map((r) => r.cells[k].textContent);
          const order = numeric ? figure(x) - figure(y) || 0 : x.localeCompare(y);
          return down ? -order : order;
        });
        body.append(...rows);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
    }
  }
  const filter = one("#filter");
  filter.addEventListener("input", () => {
    const word = filter.value.toLowerCase();
    for (const row of all("tbody tr")) row.hidden = word !== "" && !row.textContent.toLowerCase().includes(word);
  });
}

graph();
tables();
for (const button of all(".go")) button.addEventListener("click", () => offload(button.textContent));
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => { for (const fold of all("details")) fold.open = true; });
for (const fold of all("details")) fold.addEventListener("toggle", scrollers);
follow();
scrollers();
addEventListener("resize", scrollers);
one("#theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
