"""Self-contained pages: one file without external resources; its only script is for tables."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from tosajax import html
from tosajax.viz import charts

_STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --ink: #1b1d21; --faint: #565b63;
  --line: #dcdfe4; --head: #f3f4f6; --control: #868c96; --link: #0060a0; @LIGHT@ }
@media (prefers-color-scheme: dark) {
  :root { --back: #15171a; --ink: #e4e6ea; --faint: #a3a9b3; --line: #34383f; --head: #22252a;
    --control: #767d88; --link: #7cc0f5; @DARK@ }
}
* { box-sizing: border-box; }
body { background: var(--back); color: var(--ink); margin: 0 auto; max-width: 100rem;
  padding: 1.25rem clamp(0.75rem, 2vw, 2rem) 2rem; font: 0.95rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.75rem; font-weight: 650; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 0.6rem; padding-top: 0.9rem; font-weight: 650;
  border-top: 1px solid var(--line); }
h3 { font-size: 0.98rem; margin: 1.5rem 0 0.3rem; font-weight: 600; }
p.note, footer, figcaption { color: var(--faint); font-size: 0.87rem; max-width: 60rem; }
p.note { margin: 0.3rem 0 0.7rem; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.92em;
  overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.25rem 1.25rem;
  margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 0 auto 1.25rem; max-width: 80rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: "DejaVu Sans", Verdana, system-ui, sans-serif !important; }
svg.narrow { display: none; }
div.picture { overflow: auto; max-height: 85vh; border: 1px solid var(--line);
  border-radius: 4px; }
div.picture svg { display: block; margin: 0 auto; }
form.filter { display: flex; flex-wrap: wrap; gap: 0.4rem 0.9rem; align-items: center;
  margin: 0 0 0.6rem; font-size: 0.87rem; }
form.filter[hidden] { display: none; }
form.filter label { color: var(--faint); }
form.filter input, form.filter select, form.filter button { font: inherit; color: var(--ink);
  background: var(--back); border: 1px solid var(--control); border-radius: 4px;
  padding: 0.15rem 0.45rem; max-width: 100%; }
form.filter input[type=number] { width: 6.5rem; }
form.filter button { background: var(--head); cursor: pointer; }
form.filter output { color: var(--faint); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
div.table { overflow: auto; max-height: 85vh; border: 1px solid var(--line); border-radius: 4px; }
table { border-collapse: separate; border-spacing: 0; font-size: 0.8rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 0.22rem 0.42rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
thead th { position: sticky; top: 0; z-index: 1; background: var(--head); font-weight: 600;
  vertical-align: bottom; }
tbody th { font-weight: normal; }
tbody th { position: sticky; left: 0; background: var(--back); }
tbody th, td.text { overflow-wrap: anywhere; min-width: 8rem; }
@media (min-width: 64rem) { tbody th { min-width: 16rem; } }
small { color: var(--faint); font-size: 0.92em; overflow: hidden; display: -webkit-box;
  -webkit-box-orient: vertical; -webkit-line-clamp: 2; line-clamp: 2; }
tbody tr:hover > * { background: var(--head); }
th button { all: unset; cursor: pointer; text-align: left; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
.number, .number button { text-align: right; }
footer { margin-top: 2.25rem; padding-top: 0.7rem; border-top: 1px solid var(--line); }
@media (max-width: 56rem) {
  svg.wide { display: none !important; } svg.narrow { display: block !important; }
  figure { max-width: 36rem; }
}
@media (max-width: 40rem) {
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 0.45rem; }
}
@media print {
  div.table, div.picture { max-height: none; overflow: visible; } form.filter { display: none; }
}
"""
# Cells without a value are sorted last in both directions. A filter of numbers keeps rows whose
# cell is not a number.
_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], rows = [...body.rows];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.order ?? row.cells[column].textContent;
    const compare = (x, y) => {
      if (x === "" || y === "") return (x === "") - (y === "");
      const a = Number(x), b = Number(y);
      if (Number.isNaN(a) || Number.isNaN(b)) return sign * x.localeCompare(y);
      return a === b ? 0 : a < b ? -sign : sign;
    };
    body.append(...[...body.rows].sort((p, q) => compare(key(p), key(q))));
  }));
  const form = table.parentNode.previousElementSibling, field = form.elements;
  const texts = rows.map(row => [...row.cells].map(c => c.textContent).join(" ").toLowerCase());
  const within = row => {
    if (!field.column || field.column.value === "" || field.bound.value === "") return true;
    const cell = row.cells[field.column.value], bound = Number(field.bound.value);
    if (cell.textContent === "") return false;
    if (!cell.dataset.order) return true;
    const value = Number(cell.dataset.order);
    return field.side.value === "most" ? value <= bound : value >= bound;
  };
  const show = () => {
    const words = field.words.value.toLowerCase().split(/\\s+/).filter(w => w);
    let left = 0;
    rows.forEach((row, at) => {
      row.hidden = !(words.every(w => texts[at].includes(w)) && within(row));
      left += !row.hidden;
    });
    form.querySelector("output").value = `${left} of ${rows.length} rows`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  form.hidden = false;
  show();
}
"""


def page(title: str, sections: Iterable[tuple[str, str]], *, command: str | None = None) -> str:
    """An HTML document, light or dark like the reader's system.

    Args:
      title: the title, plain text.
      sections: pairs of a heading, plain text, and the HTML of its section.
      command: the command that made the page, for its footer.

    Example:
      >>> from tosajax import viz
      >>> page = viz.page("Accuracy", [("Results", "<p>All are equal.</p>")])
      >>> page[:15], "All are equal." in page
      ('<!DOCTYPE html>', True)
    """
    body = "\n".join(
        f"<section>\n<h2>{html.text(head)}</h2>\n{content}\n</section>"
        for head, content in sections
    )
    style = _STYLE.replace("@LIGHT@", charts.css(charts.LIGHT))
    style = style.replace("@DARK@", charts.css(charts.DARK))
    by = f" with <code>{html.text(command)}</code>" if command else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.text(title)}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{html.text(title)}</h1></header>
<main>
{body}
</main>
<footer>Made by tosajax{_version()}{by}.</footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _version() -> str:
    """A space and the version of tosajax; "" if it is not installed."""
    try:
        return f" {html.text(importlib.metadata.version('tosajax'))}"
    except importlib.metadata.PackageNotFoundError:
        return ""
