// The page of a run: its tables, trials and views.

// ---- the table of layers

const layers = payload.layers;
const isHot = new Set(layers.hot);
const column = (key) => layers.columns.find((found) => found.key === key);
const searched = ["path", "function", "phase"]
  .map(column)
  .filter(Boolean)
  .map((found) => cellsOf(found).map((cell) => cell.toLowerCase()));
const sorting = { at: -1, down: false };
let chosen = -1;

function shareBar(cell, column, text) {
  column.most = column.most || Math.max(...cellsOf(column).map((part) => parseFloat(part) || 0));
  const part = column.most ? (100 * (parseFloat(text) || 0)) / column.most : 0;
  cell.classList.add("share");
  cell.style.setProperty("--part", `calc((100% - 4px) * ${part / 100})`);
}

const layerTable = new Table(byId("layer-table"), layers.columns, {
  onSort: (at) => {
    const first = layers.columns[at].text || layers.columns[at].key === "index" ? false : true;
    sorting.down = sorting.at === at ? !sorting.down : first;
    sorting.at = at;
    showLayers();
  },
  rowClass: (row) => [isHot.has(row) && "hot", row === chosen && "chosen"].filter(Boolean).join(" "),
  fill: (cell, row, found, text) => {
    if (found.key === "share") shareBar(cell, found, text);
    if (found.key !== "index") return false;
    const link = element("a", "pick", text);
    link.href = `#layer-${text}`;
    link.setAttribute("aria-label", `Trials of layer ${text}`);
    cell.append(link);
    return true;
  },
});

function matching() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hotOnly = byId("only-hot").checked;
  const phase = byId("phase") ? byId("phase").value : "";
  const phases = phase && cellsOf(column("phase"));
  const found = [];
  for (let row = 0; row < layers.count; row++) {
    if (hotOnly && !isHot.has(row)) continue;
    if (phase && phases[row] !== phase) continue;
    if (words.every((word) => searched.some((cells) => cells[row].includes(word)))) found.push(row);
  }
  return found;
}

function showLayers() {
  const order = matching();
  if (sorting.at >= 0) {
    const by = layers.columns[sorting.at];
    by.ranks = by.ranks || unsigned(by.rank, 4);
    const { ranks } = by;
    const sign = sorting.down ? -1 : 1;
    // What is not known comes last in both directions; equal ones stay in the order of the calls.
    order.sort((a, b) => {
      if (ranks[a] === ranks[b]) return a - b;
      if (ranks[a] === UNKNOWN) return 1;
      if (ranks[b] === UNKNOWN) return -1;
      return sign * (ranks[a] - ranks[b]);
    });
  }
  layerTable.heads.forEach((head, at) => {
    const now = at !== sorting.at ? "none" : sorting.down ? "descending" : "ascending";
    head.setAttribute("aria-sort", now);
  });
  layerTable.host.scrollTop = 0;
  layerTable.show(order);
  const number = (count) => count.toLocaleString("en-US");
  byId("shown").textContent =
    order.length === layers.count
      ? `${number(layers.count)} rows`
      : `${number(order.length)} of ${number(layers.count)} rows`;
}
byId("filter").addEventListener("input", showLayers);
byId("only-hot").addEventListener("change", showLayers);
if (byId("phase")) byId("phase").addEventListener("change", showLayers);
byId("save").addEventListener("click", () => {
  const shown = layerTable.order.map((row) => layers.columns.map((found) => cellsOf(found)[row]));
  saveCsv("layers.csv", [layers.columns.map((found) => found.title), ...shown]);
});
showLayers();

// ---- the tree of links

const links = payload.links;
if (links) {
  const folded = new Set();
  const hasBelow = links.depth.map((depth, row) => links.depth[row + 1] > depth);
  const hotLinks = new Set(links.hot);
  links.columns[0].extra = 20 + 14 * Math.max(...links.depth.slice(0, 2000));
  links.columns[0].extra = Math.min(links.columns[0].extra, 160);
  const shareAt = links.columns.find((found) => found.title.startsWith("share"));
  const linkTable = new Table(byId("link-table"), links.columns, {
    rowClass: (row) => (hotLinks.has(row) ? "hot" : ""),
    fill: (cell, row, found, text) => {
      if (found === shareAt && text) shareBar(cell, found, text);
      if (found !== links.columns[0]) return false;
      cell.style.paddingLeft = `${10 + 16 * Math.min(links.depth[row], 12)}px`;
      cell.title = links.path[row];
      const twist = element("button", "twist", folded.has(row) ? "\u25b8" : "\u25be");
      twist.type = "button";
      twist.disabled = !hasBelow[row];
      twist.setAttribute("aria-expanded", String(!folded.has(row)));
      twist.setAttribute("aria-label", `Links below ${links.path[row]}`);
      twist.addEventListener("click", () => {
        if (!folded.delete(row)) folded.add(row);
        showLinks();
        const again = linkTable.body.querySelector(`tr[data-row="${row}"] .twist`);
        if (again) again.focus({ preventScroll: true });
      });
      const name = element("bdi", "", text);
      cell.append(twist, name);
      return true;
    },
  });
  const showLinks = () => {
    const order = [];
    let under = Infinity;
    for (let row = 0; row < links.count; row++) {
      if (links.depth[row] > under) continue;
      order.push(row);
      under = folded.has(row) ? links.depth[row] : Infinity;
    }
    linkTable.show(order);
  };
  const foldFrom = (depth) => {
    folded.clear();
    links.depth.forEach((d, row) => d >= depth && hasBelow[row] && folded.add(row));
    showLinks();
  };
  byId("unfold").addEventListener("click", () => foldFrom(Infinity));
  byId("fold").addEventListener("click", () => foldFrom(0));
  foldFrom(links.count > ALL_ROWS ? 1 : 2);
  links.table = linkTable;
}

// ---- distributions over the trials

const samples = payload.samples;
const countsAt = partsBefore(samples.bins, 1);
const levelsAt = partsBefore(samples.blocks, 3);
const counts = unsigned(samples.counts, 4);
const levels = bytes(samples.levels);
const sentences = samples.text.map(cellsOf);
const textOf = (at) => sentences.map((cells) => cells[at]).filter(Boolean).join(" ");
const words = ["index", "function", "path", "phase"].map((key) => column(key) && cellsOf(column(key)));
for (let row = 0; row < layers.count; row++) {
  const [index, called, path, phase] = words.map((cells) => cells && cells[row]);
  samples.names.push(`${index}_${called} at ${path}${phase ? `, ${phase}` : ""}`);
}
const choice = byId("choice");
choice.append(...samples.names.map((name, at) => new Option(name, String(at))));

function histogramOf(at) {
  const [low, high] = samples.ends[at];
  const bins = samples.bins[at];
  const width = (high - low) / bins;
  const count = Array.from(counts.slice(countsAt[at], countsAt[at + 1]));
  const left = count.map((_, bin) => low + bin * width);
  return { left, right: left.map((value) => value + width), count };
}
function courseOf(at) {
  const [, , floor, ceiling] = samples.ends[at];
  const blocks = samples.blocks[at];
  const line = (which) =>
    Array.from(
      levels.slice(levelsAt[at] + which * blocks, levelsAt[at] + (which + 1) * blocks),
      (level) => floor + (level / 255) * (ceiling - floor),
    );
  const trial = Array.from({ length: blocks }, (_, block) => (block + 0.5) * samples.block[at]);
  return { trial, low: line(0), median: line(1), high: line(2) };
}

function showDistribution() {
  const at = Number(choice.value);
  byId("verdict").textContent = textOf(at);
  const block = samples.block[at];
  byId("course").textContent =
    block === 1
      ? "The course over the run, trial by trial."
      : `The course over the run: of every ${block} trials the median, and a band from the 5th to the 95th percentile.`;
  const histogram = charts.get("histogram");
  const course = charts.get("course");
  const time = `${at < samples.wholes ? "time" : "self time"} [${samples.unit[at]}]`;
  if (histogram) {
    const data = histogramOf(at);
    const [low, high] = samples.ends[at];
    const plot = histogram.document.roots()[0];
    plot.x_range.setv({ start: low - (high - low) / 50, end: high + (high - low) / 50 });
    plot.y_range.setv({ start: 0, end: 1.06 * Math.max(...data.count) });
    plot.below[0].axis_label = time;
    source(histogram, "histogram").data = data;
  }
  if (course) {
    const data = courseOf(at);
    const [, , floor, ceiling] = samples.ends[at];
    const margin = (ceiling - floor) / 12 || ceiling / 10 || 1;
    const plot = course.document.roots()[0];
    plot.x_range.setv({ start: 0, end: samples.block[at] * samples.blocks[at] });
    plot.y_range.setv({ start: Math.max(0, floor - margin), end: ceiling + margin });
    plot.left[0].axis_label = time;
    source(course, "course").data = data;
  }
}
function choose(row, scroll) {
  chosen = row;
  choice.value = String(samples.wholes + row);
  showDistribution();
  layerTable.repaint();
  if (scroll) byId("trials").scrollIntoView({ block: "start" });
}
// A layer has an address of its own: #layer-12.
function follow() {
  const found = /^#layer-(\d+)$/.exec(location.hash);
  const row = found ? Number(found[1]) : -1;
  if (row >= 0 && row < layers.count) choose(row, true);
}
addEventListener("hashchange", follow);
choice.addEventListener("change", () => {
  chosen = Number(choice.value) - samples.wholes;
  showDistribution();
  layerTable.repaint();
});
const step = (by) => {
  const at = Number(choice.value) + by;
  if (at < 0 || at >= samples.names.length) return;
  choice.value = String(at);
  choice.dispatchEvent(new Event("change"));
};
byId("previous").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
for (const button of document.querySelectorAll(".pick[data-layer]")) {
  button.addEventListener("click", () => {
    const hash = `#layer-${button.dataset.layer}`;
    if (location.hash === hash) follow();
    else location.hash = hash;
  });
}

// The words of a chart's layers are those of the table; a chart of some layers has their rows.
function joinLayers(chart) {
  const marks = source(chart, "layers");
  const rows = marks.data.row && Array.from(marks.data.row);
  const more = {};
  for (const found of layers.columns) {
    const cells = cellsOf(found);
    const name = found.key in marks.data ? `${found.key}_text` : found.key;
    more[name] = rows ? rows.map((row) => cells[row]) : cells;
  }
  marks.data = { ...marks.data, ...more };
  marks.selected.change.connect(() => {
    const [at] = marks.selected.indices;
    if (at !== undefined) choose(rows ? rows[at] : at, false);
  });
}
embedded.layers = embedded.memory = embedded.roofline = joinLayers;
embedded.histogram = embedded.course = showDistribution;

for (const button of document.querySelectorAll("[data-view]")) {
  const section = button.closest("section");
  button.addEventListener("click", () => {
    for (const other of section.querySelectorAll("[data-view]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    for (const panel of section.querySelectorAll("[data-panel]")) {
      panel.hidden = panel.dataset.panel !== button.dataset.view;
    }
    if (window.Bokeh) embedVisible();
  });
}

tables.push(...[layerTable, links && links.table].filter(Boolean));
showDistribution();
follow();
