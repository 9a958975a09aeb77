"use strict";
{
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  function made(name, text, more = {}) {
    const element = document.createElement(name);
    element.textContent = text;
    if (name === "button") element.type = "button";
    for (const [key, value] of Object.entries(more)) element.setAttribute(key, value);
    return element;
  }
  function button(text, action, more) {
    const element = made("button", text, more);
    element.addEventListener("click", action);
    return element;
  }

  // ---- theme and print

  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  function showTheme() {
    const theme = chosen || (dark.matches ? "dark" : "light");
    root.dataset.theme = theme;
    byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  }
  byId("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    showTheme();
  });
  dark.addEventListener("change", showTheme);
  showTheme();
  byId("print").addEventListener("click", () => print());

  // ---- tables: sorting, filtering, saving

  const SCALE = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  // What a cell is sorted by; nothing where it is not known.
  function valueOf(cell) {
    const parts = /^~?([-+]?[\d,.]+(?:e[-+]?\d+)?) ?([A-Za-z]*)/.exec(cell);
    return parts ? Number(parts[1].replaceAll(",", "")) * (SCALE[parts[2]] ?? 1) : NaN;
  }
  const textsOf = (row) => [...row.cells].map((cell) => cell.textContent);

  function save(name, rows) {
    const formula = (cell) => /^'* *[-=+@\uff0d\uff1d\uff0b\uff20]/.test(cell) && isNaN(Number(cell));
    // What is not known is an empty cell; a spreadsheet takes other such texts for formulas.
    const safe = (cell) => (cell === "-" ? "" : formula(cell) ? `'${cell}` : cell);
    const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    const lines = rows.map((row) => row.map((cell) => quoted(safe(cell))).join(","));
    const link = made("a", "", { download: name });
    link.href = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // More rows than this are shown where they are asked for, and can be filtered.
  const MANY = 20;
  const MOST = 100;
  const shown = new WeakMap();

  function equip(holder) {
    const table = holder.firstElementChild;
    const name = table.getAttribute("aria-label");
    const heads = [...table.tHead.rows[0].cells].filter((head) => head.localName === "th");
    const rows = all("tbody tr", table);
    const texts = rows.map(textsOf);
    const tools = made("p", "", { class: "tools" });
    const count = made("span", "", { class: "muted", "aria-live": "polite" });
    let order = rows.map((_, row) => row);
    let most = MOST;
    let words = [];
    let onlyHot = false;

    function show() {
      const fits = (row) => !onlyHot || rows[row].classList.contains("hot");
      const has = (row) => words.every((word) => texts[row].join(" ").toLowerCase().includes(word));
      const fitting = order.filter((row) => fits(row) && has(row));
      table.tBodies[0].replaceChildren(...fitting.slice(0, most).map((row) => rows[row]));
      table.tBodies[1]?.remove();
      shown.set(table, fitting);
      const number = (value) => value.toLocaleString("en-US");
      const visible = Math.min(most, fitting.length);
      count.textContent =
        visible < rows.length ? `${number(visible)} of ${number(rows.length)} rows ` : "";
      if (visible < fitting.length) count.append(button("Show all", table.showAll));
    }
    table.showAll = () => {
      most = Infinity;
      show();
    };
    function sort(head, at) {
      const text = head.classList.contains("text");
      const before = head.getAttribute("aria-sort");
      const down = before === "none" ? !text && at > 0 : before === "ascending";
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = texts.map((cells) => (text ? cells[at] : valueOf(cells[at])));
      const unknown = (key) => (text ? key === "" || key === "-" : isNaN(key));
      // What is not known comes last both ways; equal ones stay in their order.
      order = rows.map((_, row) => row).sort((a, b) => {
        if (unknown(keys[a]) || unknown(keys[b])) return unknown(keys[a]) - unknown(keys[b]);
        const sign = (keys[a] > keys[b]) - (keys[a] < keys[b]);
        return down ? -sign : sign;
      });
      show();
    }
    // Where a name stands for several rows, these stay together.
    const named = all("tbody td.name", table).every((cell) => cell.textContent);
    const folds = holder.classList.contains("tree");
    for (const head of !folds && rows.length > 2 && named ? heads : []) {
      const title = head.textContent;
      if (title === "trials" && holder.querySelector("svg")) continue;
      head.setAttribute("aria-sort", "none");
      head.replaceChildren(button(title, () => sort(head, head.cellIndex)));
    }
    if (!folds && rows.length > MANY) {
      const filter = made("input", "", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${name}` });
      filter.addEventListener("input", () => {
        words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        show();
      });
      tools.append(filter);
      if (holder.querySelector("tr.hot")) {
        const label = made("label", " hot only");
        const box = made("input", "", { type: "checkbox" });
        box.addEventListener("change", () => {
          onlyHot = box.checked;
          show();
        });
        label.prepend(box);
        tools.append(label);
      }
      tools.append(count, made("span", "Click a heading to sort."));
      if (rows.length > MOST) show();
    }
    const file = `${name.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase()}.csv`;
    const saves = () => {
      const lines = [textsOf(table.rows[0]), ...(shown.get(table) || order).map((row) => texts[row])];
      save(file, lines.map((cells) => heads.map((head) => cells[head.cellIndex])));
    };
    if (name) tools.append(button("CSV", saves, { "aria-label": `Save as CSV: ${name}`, class: "save" }));
    // Few rows are read first.
    const next = holder.nextElementSibling;
    if (rows.length > MANY) holder.before(tools);
    else (next?.classList.contains("caption") ? next : holder).after(tools);
    tools.classList.toggle("below", rows.length <= MANY);
  }

  // ---- a table that folds

  function plant(holder) {
    const rows = all("tbody tr", holder);
    const depths = rows.map((row) => Number(row.style.getPropertyValue("--depth")));
    const folded = new Set();
    const twists = rows.map((row, at) => {
      const cell = row.querySelector(".name");
      if (!(depths[at + 1] > depths[at])) return null;
      const twist = button("", () => {
        if (!folded.delete(at)) folded.add(at);
        show();
      });
      twist.setAttribute("aria-label", `Links below ${cell.textContent}`);
      cell.prepend(twist);
      return twist;
    });
    function show() {
      let under = Infinity;
      rows.forEach((row, at) => {
        row.hidden = depths[at] > under;
        if (row.hidden) return;
        under = folded.has(at) ? depths[at] : Infinity;
        twists[at]?.setAttribute("aria-expanded", String(!folded.has(at)));
      });
    }
    function fold(depth) {
      folded.clear();
      depths.forEach((own, at) => own >= depth && twists[at] && folded.add(at));
      show();
    }
    const before = holder.previousElementSibling;
    const tools = before?.classList.contains("tools") ? before : made("p", "", { class: "tools" });
    if (tools !== before) holder.before(tools);
    tools.prepend(button("Unfold all", () => fold(Infinity)), button("Fold all", () => fold(0)));
    for (const body of all("tbody", holder)) body.hidden = false;
    holder.unfold = () => fold(Infinity);
    fold(rows.length > 300 ? 1 : 2);
  }

  // What is pointed at in a picture is named by the first cells of its row.
  const NAMING = 7;
  function nameOf(row) {
    const heads = row.closest("table").tHead.rows[0].cells;
    const naming = [...row.cells].slice(0, NAMING).filter((cell) => !["", "-"].includes(cell.textContent));
    const named = (cell) => `${heads[cell.cellIndex].textContent} ${cell.textContent}`;
    return naming.map((cell) => (cell.matches(".text") ? cell.textContent : named(cell))).join(", ");
  }
  const said = new Map(all("tr[id]").map((row) => [row.id, nameOf(row)]));

  for (const holder of all(".scroll")) if (holder.firstElementChild.localName === "table") equip(holder);
  all(".scroll.tree").forEach(plant);

  // ---- what leads to a row

  function reveal() {
    const name = decodeURIComponent(location.hash.slice(1));
    // It may be among the rows of a table that are not shown.
    if (!byId(name)) for (const table of all("table")) if (shown.has(table)) table.showAll();
    const row = byId(name);
    if (row?.localName !== "tr") return;
    for (let fold = row.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (row.hidden) row.closest(".tree").unfold();
    for (const other of all("tr.chosen")) other.classList.remove("chosen");
    row.classList.add("chosen");
    row.scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // ---- pictures: a word for what is pointed at, the arrows from one bar to the next

  const tip = byId("tip");
  function point(place) {
    tip.hidden = !place;
    if (tip.hidden) return;
    tip.textContent = place.getAttribute("aria-label");
    const { left, right, top } = place.getBoundingClientRect();
    const half = tip.offsetWidth / 2;
    const middle = Math.min(Math.max((left + right) / 2, half + 4), innerWidth - half - 4);
    tip.style.left = `${middle - half}px`;
    tip.style.top = `${Math.max(4, top - tip.offsetHeight - 6)}px`;
  }
  for (const picture of all("figure svg")) {
    const places = all("a", picture);
    for (const place of places) {
      place.setAttribute("aria-label", said.get(place.getAttribute("href").slice(1)));
    }
    if (places.length) places[0].tabIndex = 0;
    picture.addEventListener("pointerover", (event) => point(event.target.closest("a")));
    picture.addEventListener("pointerleave", () => point(null));
    picture.addEventListener("focusin", (event) => point(event.target.closest("a")));
    picture.addEventListener("focusout", () => point(null));
    picture.addEventListener("click", (event) => {
      const place = event.target.closest("a");
      if (place && place.getAttribute("href") === location.hash) reveal();
    });
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = step && places[places.indexOf(event.target.closest("a")) + step];
      if (!next) return;
      event.preventDefault();
      for (const place of places) place.tabIndex = place === next ? 0 : -1;
      next.focus();
    });
  }
  root.dataset.ready = "yes";
}
