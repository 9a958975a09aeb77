// The page of ranks: the layers of the rank that is chosen, or of all.

const { names, ranks, here, others, hot } = payload;
const ms = (values) => values.map((value) => (value === null ? "-" : value.toFixed(4)));
const stays = (title, cells) => ({ title, cells, text: true });
const named = () => [
  { ...stays("path", names.path), stays: true },
  stays("function", names.function),
  stays("phase", names.phase),
];
const ends = names.path.map((_, row) => {
  const times = here.map((layers) => layers[row]).sort((a, b) => a - b);
  const middle = (times[(times.length - 1) >> 1] + times[times.length >> 1]) / 2;
  const most = times[times.length - 1];
  return { least: times[0], middle, most, at: here.findIndex((layers) => layers[row] === most) };
});

function columnsOf(rank) {
  if (rank < 0) {
    const columns = ["middle", "least", "most"].map((key, at) => ({
      title: ["median [ms]", "least [ms]", "most [ms]"][at],
      cells: ms(ends.map((end) => end[key])),
    }));
    return [...columns, stays("most on", ends.map((end) => ranks[end.at]))];
  }
  const known = (row) => others[rank][row] !== null;
  const beyond = here[rank].map((time, row) => (known(row) ? time - others[rank][row] : null));
  return [
    { title: `${ranks[rank]} [ms]`, cells: ms(here[rank]) },
    { title: "others [ms]", cells: ms(others[rank]) },
    { title: "longer by [ms]", cells: ms(beyond) },
  ];
}

function showRank() {
  const rank = Number(byId("rank").value);
  const rows = new Set(hot.filter(([of]) => rank < 0 || of === rank).map(([, row]) => row));
  byId("rank-table").replaceChildren();
  const table = new Table(byId("rank-table"), [...named(), ...columnsOf(rank)], {
    rowClass: (row) => (rows.has(row) ? "hot" : ""),
    fill: () => false,
  });
  tables.splice(0, tables.length, table);
  table.show(names.path.map((_, row) => row));
}
byId("rank").addEventListener("change", showRank);
showRank();
