"use strict";
// pan, zoom, search and choose in the graph; sort and filter tables. Nothing here reads or writes markup: text and classes only.
const one = (s) => document.querySelector(s);
const NEAR = 760; // width of the part of the graph that is shown at first and around a node that was searched
const all = (s, of = document) => Array.from(of.querySelectorAll(s));

function graph() {
  const drawing = one("#graph");
  if (!drawing) return;
  const start = drawing.getAttribute("viewBox").split(" ").map(Number);
  let view = [...start], chosen = null, held = null, moved = false;
  const near = NEAR * (drawing.clientHeight / drawing.clientWidth || 1);
  if (view[3] > near) view = [-NEAR / 2, view[1], NEAR, near];
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

function figure(text) {
  const number = parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(number) ? -Infinity : number;
}

function tables() {
  for (const table of all("table")) {
    const body = table.querySelector("tbody");
    all("th", table).forEach((head, k) => {
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
    });
  }
  const filter = one("#filter");
  filter.addEventListener("input", () => {
    const word = filter.value.toLowerCase();
    for (const row of all("tbody tr")) row.hidden = word !== "" && !row.textContent.toLowerCase().includes(word);
  });
}

graph();
tables();
one("#theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
