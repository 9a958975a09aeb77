// What a run's large tables are made with.

const payload = JSON.parse(byId("data").textContent);
const UNKNOWN = 2 ** 32 - 1;
// With more rows than this a table has those elements only that can be seen.
const ALL_ROWS = 300;
const AROUND = 8;

// ---- packed arrays

function bytes(text) {
  const binary = atob(text);
  const array = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) array[i] = binary.charCodeAt(i);
  return array;
}
function unsigned(text, size) {
  const view = new DataView(bytes(text).buffer);
  const array = new Uint32Array(view.byteLength / size);
  for (let i = 0; i < array.length; i++) {
    array[i] = size === 2 ? view.getUint16(2 * i, true) : view.getUint32(4 * i, true);
  }
  return array;
}
function cellsOf(column) {
  if (!column.cells) {
    column.cells = Array.from(unsigned(column.at, 2), (at) => column.words[at]);
  }
  return column.cells;
}
const partsBefore = (lengths, factor) => {
  const starts = [0];
  for (const length of lengths) starts.push(starts[starts.length - 1] + factor * length);
  return starts;
};

// ---- tables

const pen = document.createElement("canvas").getContext("2d");
pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
const measured = (text) => pen.measureText(text).width;

class Table {
  // columns: title, text (or number), cells; fill(cell, row, column) may add to a cell.
  constructor(host, columns, { onSort, rowClass, fill }) {
    Object.assign(this, { host, columns, onSort, rowClass, fill, order: [], whole: false });
    this.table = element("table");
    const widths = columns.map((column) => this.width(column));
    const cols = element("colgroup");
    const wide = (found, name) => (found.printed === false ? `${name} wide`.trim() : name);
    this.classOf = (found) => wide(found, found.text ? "" : "number");
    for (const [at, width] of widths.entries()) {
      const col = element("col", wide(columns[at], ""));
      col.style.width = `${width}px`;
      cols.append(col);
    }
    // The first columns, which name a row, stay where they are.
    this.left = columns.map((column, at) =>
      column.stays ? widths.slice(0, at).reduce((a, b) => a + b, 0) : null,
    );
    this.stay = (cell, at) => {
      if (this.left[at] === null) return;
      cell.classList.add("stays");
      cell.style.left = `${this.left[at]}px`;
    };
    this.table.style.width = `max(100%, ${widths.reduce((a, b) => a + b, 0)}px)`;
    const head = element("thead");
    const line = element("tr");
    this.heads = columns.map((column, at) => {
      const cell = element("th", this.classOf(column));
      cell.scope = "col";
      if (column.meaning) cell.title = column.meaning;
      if (onSort) {
        cell.setAttribute("aria-sort", "none");
        const button = element("button", "", column.title);
        button.type = "button";
        button.addEventListener("click", () => onSort(at));
        cell.append(button);
      } else {
        cell.append(element("span", "", column.title));
      }
      this.stay(cell, at);
      line.append(cell);
      return cell;
    });
    head.append(line);
    this.body = element("tbody");
    this.table.append(cols, head, this.body);
    host.append(this.table);
    let waiting = false;
    host.addEventListener("scroll", () => {
      if (waiting || this.order.length <= ALL_ROWS) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        this.paint();
      });
    });
  }
  // As wide as the longest cell, in bold as a hot row's, and as the heading's longest word.
  width(column) {
    let longest = "";
    for (const cell of cellsOf(column)) if (cell.length > longest.length) longest = cell;
    const cells = Math.min(measured(longest), column.text ? 260 : Infinity);
    const words = Math.max(...column.title.split(" ").map(measured)) + (this.onSort ? 14 : 0);
    return Math.ceil(Math.max(cells, words) + 24 + (column.extra || 0));
  }
  show(order) {
    this.order = order;
    this.shown = null;
    this.table.setAttribute("aria-rowcount", String(order.length + 1));
    this.paint();
  }
  paint() {
    const count = this.order.length;
    const height = this.rowHeight || 30;
    let from = 0;
    let to = count;
    if (count > ALL_ROWS && !this.whole) {
      from = Math.max(0, Math.floor(this.host.scrollTop / height) - AROUND);
      to = Math.min(count, from + Math.ceil(this.host.clientHeight / height) + 2 * AROUND);
    } else if (this.whole) {
      to = Math.min(count, ALL_ROWS);
    }
    if (this.shown && this.shown[0] === from && this.shown[1] === to) return;
    this.shown = [from, to];
    const rows = [];
    if (from) rows.push(this.space(from * height));
    for (let place = from; place < to; place++) rows.push(this.row(place));
    if (to < count && !this.whole) rows.push(this.space((count - to) * height));
    this.body.replaceChildren(...rows);
    const first = this.body.rows[from ? 1 : 0];
    if (!this.rowHeight && first) {
      this.rowHeight = first.getBoundingClientRect().height || null;
      // Now that it is known how high the rows are, so is how high the others would be.
      if (this.rowHeight && to - from < count) this.repaint();
    }
  }
  space(height) {
    const row = element("tr", "gap");
    row.setAttribute("aria-hidden", "true");
    const cell = element("td");
    cell.colSpan = this.columns.length;
    cell.style.height = `${height}px`;
    row.append(cell);
    return row;
  }
  row(place) {
    const row = this.order[place];
    const made = element("tr", this.rowClass(row));
    made.setAttribute("aria-rowindex", String(place + 2));
    made.dataset.row = String(row);
    this.columns.forEach((column, at) => {
      const text = cellsOf(column)[row];
      const cell = element("td", this.classOf(column));
      if (!this.fill(cell, row, column, text)) cell.textContent = text;
      if (text.length > 34) cell.title = text;
      this.stay(cell, at);
      made.append(cell);
    });
    return made;
  }
  // On paper: the first rows in the order chosen.
  onPaper(whole) {
    this.whole = whole;
    this.repaint();
    if (this.note) this.note.remove();
    this.note = null;
    if (!whole || this.order.length <= ALL_ROWS) return;
    const all = this.order.length.toLocaleString("en-US");
    this.note = element("p", "caption", `The first ${ALL_ROWS} of ${all} rows.`);
    this.host.after(this.note);
  }
  repaint() {
    this.shown = null;
    this.paint();
  }
}
