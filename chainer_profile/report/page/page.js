// The page's own script, behind tables.js in the same block.

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
    const button = element("button", "pick", text);
    button.type = "button";
    button.setAttribute("aria-label", `Trials of layer ${text}`);
    button.addEventListener("click", () => choose(row, true));
    cell.append(button);
    return true;
  },
});

function matching() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hotOnly = byId("only-hot").checked;
  const found = [];
  for (let row = 0; row < layers.count; row++) {
    if (hotOnly && !isHot.has(row)) continue;
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
const levels = unsigned(samples.levels, 2);
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
      (level) => floor + (level / 65535) * (ceiling - floor),
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
  button.addEventListener("click", () => choose(Number(button.dataset.layer), true));
}

// ---- charts

const charts = new Map();
const source = (chart, name) => chart.document.get_model_by_name(name);

// Where there is no room to name all layers, the slowest ones are named first.
function nameLayers(chart) {
  const axis = chart.document.get_model_by_name("names");
  const plot = axis && chart.models.find((model) => model.below && model.below.includes(axis));
  const view = axis && Bokeh.index.find_one_by_id(plot.id);
  if (!view) return;
  const phases = chart.models
    .filter((model) => /^phase \d+ \d+$/.test(model.name || ""))
    .map((model) => [model, ...model.name.split(" ").slice(1).map(Number)]);
  const { data } = chart.document.get_model_by_name("layers");
  const heights = data.median || data.peak;
  const order = heights.map((_, row) => row).sort((a, b) => heights[b] - heights[a] || a - b);
  const place = () => {
    const { start, end } = plot.x_range;
    const apart = Math.max(1, Math.ceil((LABEL * (end - start)) / Math.max(1, view.frame.bbox.width)));
    const first = Math.max(0, Math.ceil(start));
    const last = Math.min(heights.length - 1, Math.floor(end));
    const taken = new Uint8Array(heights.length + 2 * apart);
    const named = [];
    for (const row of order) {
      if (row < first || row > last || taken[row + apart]) continue;
      named.push(row);
      taken.fill(1, row + 1, row + 2 * apart);
    }
    axis.ticker.ticks = named.sort((a, b) => a - b);
    for (const [model, from, to] of phases) {
      const left = Math.max(from - 0.5, start);
      model.setv({ x: left, visible: to - left > (to - from) / 4 && left < end });
    }
  };
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      place();
    });
  };
  plot.x_range.change.connect(soon);
  new ResizeObserver(soon).observe(view.el);
  place();
}

function paintCharts(only) {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(name).trim();
  for (const chart of only || charts.values()) {
    for (const model of chart.models) {
      for (const tag of model.tags) {
        const [property, names] = tag.split("=");
        const colours = names.split(",").map(colour);
        const now = model[property];
        let value = colours[0];
        if (property === "palette") value = colours;
        else if (now && typeof now === "object" && "value" in now) value = { value };
        model.setv({ [property]: value });
      }
    }
  }
}

async function embed(holder) {
  const name = holder.dataset.chart;
  if (charts.has(name)) return;
  charts.set(name, null);
  const stored = document.querySelector(`script[data-of="${name}"]`);
  const views = await Bokeh.embed.embed_item(JSON.parse(stored.textContent), holder);
  const view = views.roots ? views.roots[0] : [...views][0];
  const chart = { view, document: view.model.document, models: [] };
  chart.models = [...chart.document.all_models].filter((model) => model.tags.length);
  charts.set(name, chart);
  paintCharts([chart]);
  nameLayers(chart);
  if (name === "layers") joinLayers(chart);
  if (name === "histogram" || name === "course") showDistribution();
}

function joinLayers(chart) {
  const bars = source(chart, "layers");
  const more = {};
  for (const found of layers.columns) {
    more[found.key === "median" ? "median_ms" : found.key] = cellsOf(found);
  }
  bars.data = { ...bars.data, ...more };
  bars.selected.change.connect(() => {
    const [row] = bars.selected.indices;
    if (row !== undefined) choose(row, false);
  });
}

const visible = (holder) => !holder.closest("[hidden]");
async function embedVisible() {
  for (const holder of document.querySelectorAll(".chart")) {
    if (!visible(holder)) continue;
    await embed(holder);
    await new Promise((resume) => setTimeout(resume));
  }
}

for (const button of document.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-view]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    for (const panel of document.querySelectorAll("[data-panel]")) {
      panel.hidden = panel.dataset.panel !== button.dataset.view;
    }
    if (window.Bokeh) embedVisible();
  });
}

// Bokeh shows its tooltips beside the page, with colours of its own.
const tipStyle = new CSSStyleSheet();
tipStyle.replaceSync(
  ":host { --background-color: var(--surface); --color: var(--ink); --divider-color: var(--muted);" +
    " --bokeh-font-size: 13px; opacity: 1; border-radius: 6px; padding: 8px 10px; max-width: 90vw; }" +
    " .bk-tooltip-row-label { color: var(--muted); padding-right: 6px; }" +
    " .bk-tooltip-row-value { color: var(--ink); overflow-wrap: anywhere; }",
);
new MutationObserver((changes) => {
  for (const { addedNodes } of changes) {
    for (const { shadowRoot } of addedNodes) {
      if (shadowRoot && !shadowRoot.adoptedStyleSheets.includes(tipStyle)) {
        shadowRoot.adoptedStyleSheets = [...shadowRoot.adoptedStyleSheets, tipStyle];
      }
    }
  }
}).observe(document.body, { childList: true });

// ---- theme and print

const toggle = byId("theme");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let own = null;
function applyTheme(theme) {
  root.dataset.theme = theme;
  toggle.setAttribute("aria-pressed", String(theme === "dark"));
  paintCharts([...charts.values()].filter(Boolean));
}
const theme = () => own || (prefersDark.matches ? "dark" : "light");
toggle.addEventListener("click", () => {
  own = theme() === "dark" ? "light" : "dark";
  applyTheme(own);
});
prefersDark.addEventListener("change", () => applyTheme(theme()));
applyTheme(theme());

const tables = [layerTable, links && links.table].filter(Boolean);
addEventListener("beforeprint", () => {
  applyTheme("light");
  for (const table of tables) table.onPaper(true);
  for (const [name, chart] of charts) {
    const holder = document.querySelector(`.chart[data-chart="${name}"]`);
    if (!chart || !visible(holder)) continue;
    const copy = chart.view.export("png", true).canvas;
    copy.className = "on-paper";
    copy.style.width = `${chart.view.bbox.width}px`;
    holder.append(copy);
  }
});
addEventListener("afterprint", () => {
  for (const copy of document.querySelectorAll(".on-paper")) copy.remove();
  for (const table of tables) table.onPaper(false);
  applyTheme(theme());
});
byId("print").addEventListener("click", () => print());

// ---- after the first paint

showDistribution();
requestAnimationFrame(() =>
  setTimeout(async () => {
    const script = document.createElement("script");
    script.textContent = byId("bokeh").textContent;
    document.head.append(script);
    Bokeh.set_log_level("warn");
    await embedVisible();
    root.dataset.ready = "yes";
  }),
);
