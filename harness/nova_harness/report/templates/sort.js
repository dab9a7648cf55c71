// Sorts the rows of a table by a column, within each of its parts. Without scripts, tables stay as
// they are.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
  [...heads].forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.title = "sort";
    head.append(button);
    button.onclick = () => {
      const down = head.ariaSort === "ascending";
      for (const other of heads) other.ariaSort = null;
      head.ariaSort = down ? "descending" : "ascending";
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter(row => row.cells.length > 1);
        rows.sort((a, b) => (down ? -1 : 1) * compared(a.cells[column], b.cells[column]));
        body.append(...rows);
      }
    };
  });
}

// Figures before other texts; "≥2,000.5 ±3" is 2000.5.
function compared(a, b) {
  const [x, y] = [a, b].map(cell => cell ? cell.textContent.trim() : "");
  const [p, q] = [x, y].map(text => parseFloat(text.replace(/^[≥≤≈#]/, "").replaceAll(",", "")));
  if (isNaN(p) || isNaN(q)) return isNaN(p) - isNaN(q) || x.localeCompare(y);
  return p - q;
}
