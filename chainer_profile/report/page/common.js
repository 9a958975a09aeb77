// What every page does: charts, theme, print. What a page has beside comes behind, in the same block.

const byId = (id) => document.getElementById(id);
const root = document.documentElement;
// Room for a layer's name below a chart, in pixels.
const LABEL = 13;
// Tables that look different on paper.
const tables = [];

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function saveCsv(name, rows) {
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const formula = (cell) => /^'* *[-=+@\uff0d\uff1d\uff0b\uff20]/.test(cell) && isNaN(Number(cell));
  // What is not known is an empty cell; a spreadsheet takes other such texts for formulas.
  const safe = (cell) => (cell === "-" ? "" : formula(cell) ? `'${cell}` : cell);
  const text = rows.map((row) => row.map((cell) => quoted(safe(cell))).join(",")).join("\r\n");
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
for (const table of document.querySelectorAll(".scroll > table[aria-label]")) {
  const name = table.getAttribute("aria-label");
  const button = element("button", "save", "CSV");
  button.type = "button";
  button.setAttribute("aria-label", `Save the table as CSV: ${name}`);
  button.addEventListener("click", () => {
    const rows = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    saveCsv(`${name.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase()}.csv`, rows);
  });
  table.parentElement.before(button);
}

// ---- charts

const charts = new Map();
// What a page does with a chart that is there.
const embedded = {};
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
  if (name in embedded) embedded[name](chart);
}

const visible = (holder) => !holder.closest("[hidden]");
async function embedVisible() {
  for (const holder of document.querySelectorAll(".chart")) {
    if (!visible(holder)) continue;
    await embed(holder);
  }
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
