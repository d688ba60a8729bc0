// What the pages share: figures, and tables that sort by a column.
function tile(value, label, note = "") {
  return element("div", {class: "tile"}, element("b", {}, value), element("span", {}, label), element("span", {}, note));
}

// columns: {title, text: left-aligned, wide: hidden on a phone, ascending: the least first, value(row), cell(row)}. Sorted by `sortBy` at first.
function sortableTable(where, columns, rows, sortBy, shown = 15) {
  let column = sortBy, descending = !columns[sortBy].ascending, all = false;
  const body = element("tbody"), more = element("button", {type: "button", class: "more"});
  const heads = columns.map((c, i) => {
    const button = element("button", {type: "button"}, c.title);
    button.onclick = () => {
      descending = column === i ? !descending : !(c.text || c.ascending);
      column = i;
      fill();
    };
    return element("th", {scope: "col", class: (c.text ? "text" : "") + (c.wide ? " wide" : "")}, button);
  });
  function fill() {
    const order = descending ? -1 : 1, value = columns[column].value;
    rows.sort((a, b) => order * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    heads.forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      head.firstChild.textContent = columns[i].title + (i === column ? (descending ? " ↓" : " ↑") : "");
    });
    body.replaceChildren(...rows.slice(0, all ? rows.length : shown).map(row => element("tr", {}, ...columns.map(c => {
      const cell = element("td", {class: (c.text ? "text " : "") + (c.wide ? "wide " : "") + (c.kind || "")});
      cell.append(c.cell(row));
      return cell;
    }))));
    more.textContent = all ? "Show fewer" : `Show all ${exact(rows.length)}`;
  }
  more.onclick = () => { all = !all; fill(); };
  where.append(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  if (rows.length > shown) where.append(more);
  fill();
}
