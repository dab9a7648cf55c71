"""What a report looks like in a real browser: nothing overflows, overlaps or stays blank.

Chromium opens the page without a window. For the checks that need geometry, a copy of the page gets
a script that measures it.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import chromium, find_browser
from PIL import Image
from report_runs import BEHAVIOURS, change, write_run

from nova_harness.report import make_report, write_report
from nova_harness.results.run_folder import write_json
from nova_harness.results.schema import Verdict

pytestmark = pytest.mark.e2e

DARK = "--blink-settings=preferredColorScheme=0"

# Runs in the page; what it finds is the text of an element that is added last.
AUDIT = """
const problems = [];
const wide = document.documentElement.scrollWidth, seen = document.documentElement.clientWidth;
if (wide > seen) problems.push(`the page is ${wide} wide, the window ${seen}`);
const scrolls = node => node.closest('.scroll') !== null;
const name = node =>
  `${node.tagName.toLowerCase()} "${(node.textContent || '').trim().slice(0, 40)}"`;
const blocks = document.querySelectorAll(
  'h1, h2, h3, p, li, dt, dd, figcaption, .tile, .tile *, .key span, th, td, summary, svg.figure');
for (const node of blocks) {
  const box = node.getBoundingClientRect();
  if (box.width === 0 && box.height === 0) continue;
  if (!scrolls(node) && (box.left < -1 || box.right > seen + 1))
    problems.push(`${name(node)} leaves the window`);
  if (node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
      && getComputedStyle(node).display !== 'inline' && !scrolls(node))
    problems.push(`${name(node)} is wider than its place`);
  if (['H1', 'H2', 'LI', 'DT', 'DD', 'FIGCAPTION'].includes(node.tagName)
      && !node.textContent.trim()) problems.push(`${name(node)} is empty`);
}
const crosses = (a, b, by) =>
  Math.min(a.right, b.right) - Math.max(a.left, b.left) > by &&
  Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
const flow = [...document.querySelectorAll('main > *, header > *, .tile, .notes li, .maps figure')]
  .filter(node => node.getBoundingClientRect().height > 0);
for (let i = 0; i < flow.length; i++) for (let j = i + 1; j < flow.length; j++)
  if (!flow[i].contains(flow[j]) && !flow[j].contains(flow[i])
      && crosses(flow[i].getBoundingClientRect(), flow[j].getBoundingClientRect(), 1))
    problems.push(`${name(flow[i])} covers ${name(flow[j])}`);
const figures = [...document.querySelectorAll('svg.figure')];
for (const figure of figures) {
  const frame = figure.getBoundingClientRect();
  if (figure.querySelectorAll('path, use').length < 20) problems.push('a figure is blank');
  const labels = [...figure.querySelectorAll('g[id*="-text_"]')];
  const boxes = some => some.map(node => node.getBoundingClientRect()).filter(box => box.width > 0);
  const texts = boxes(labels);
  if (texts.length < 5) problems.push('a figure has no text');
  for (const box of texts)
    if (box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      problems.push('text leaves a figure');
  // Of slanted texts, the upright boxes around them may overlap. Labels of hosts on a map go where
  // there is most room, which may be little.
  const upright = boxes(labels.filter(node => !node.innerHTML.includes('rotate(-60)')));
  if (!figure.closest('.maps'))
    for (let i = 0; i < upright.length; i++) for (let j = i + 1; j < upright.length; j++)
      if (crosses(upright[i], upright[j], 1.5))
        problems.push(`texts overlap: ${JSON.stringify([upright[i], upright[j]])}`);
}
const found = document.createElement('pre');
found.id = 'audit';
found.textContent = JSON.stringify({problems, figures: figures.length,
  marks: [...document.querySelectorAll('.notes li')].map(
    node => getComputedStyle(node, '::before').content)});
document.body.append(found);
"""


@pytest.fixture(scope="module")
def browser() -> str:
    return find_browser()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of all strategies, in which something has gone wrong."""
    place = tmp_path_factory.mktemp("browser")
    run = write_run(place / "run", BEHAVIOURS, windows=(1, 1000), duration_s=4, repetitions=2)
    failed = run / "cells" / "tree-w1ms-r20-stress-2"
    (failed / "DONE").unlink()
    text = "host worker5 (10.1.2.15): unreachable for 30 s; what it ran is lost, see its log"
    write_json(failed / "verdict.json", Verdict("failed", text))
    change(run / "cells" / "sink-w1ms-r20-calm-1" / "check.json", lost=2)
    write_report(make_report([run]), place / "report.html")
    return place / "report.html"


def audit(browser: str, page: Path, place: Path, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = evaluated(browser, page, place, AUDIT, *arguments)
    return answer


def evaluated(browser: str, page: Path, place: Path, script: str, *arguments: str) -> Any:
    """What a script that runs in a copy of the page tells."""
    text = page.read_text()
    text, found = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert found == 1
    copy = place / "audited.html"
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    dom = chromium(browser, place, *arguments, "--dump-dom", copy.as_uri())
    told = re.search(r'<pre id="audit">(.*?)</pre>', dom, re.DOTALL)
    assert told is not None, "the script of the audit did not come to its end"
    return json.loads(html.unescape(told[1]))


# Chromium's own least width is 500.
@pytest.mark.parametrize("width", [500, 820, 1200, 2000])
def test_nothing_overflows_overlaps_or_is_blank(
    browser: str, page: Path, tmp_path: Path, width: int
) -> None:
    found = audit(browser, page, tmp_path, f"--window-size={width},1000")
    assert found["problems"] == []
    assert found["figures"] == 9
    assert set(found["marks"]) == {'"!"', '"✓"', '"·"'}


def test_the_audit_finds_what_is_wrong(browser: str, page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    text = text.replace("<footer>", '<footer><h2 style="width: 3000px">far too wide</h2><h2></h2>')
    text = text.replace("<h2 ", '<h2 style="margin-top: -9rem" ', 1)
    text = text.replace("</footer>", '</footer><svg class="figure" viewBox="0 0 9 9"></svg>')
    broken = tmp_path / "broken.html"
    broken.write_text(text)
    problems = "\n".join(audit(browser, broken, tmp_path, "--window-size=1200,1000")["problems"])
    for expected in ("the page is", "leaves the window", "covers", "is empty", "is blank"):
        assert expected in problems


# Clicks the head of a column, twice, and tells the first column after each click.
SORT = """
const table = document.querySelector('table.sorts');
const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
const order = () => [...table.tBodies[0].rows].slice(1).map(row => row.cells[0].innerText.trim());
const found = [order()];
for (let i = 0; i < 2; i++) {
  heads.find(head => head.innerText.trim().startsWith('mean')).querySelector('button').click();
  found.push(order());
}
const pre = document.createElement('pre');
pre.id = 'audit';
pre.textContent = JSON.stringify(found);
document.body.append(pre);
"""


def test_tables_sort_by_any_column(browser: str, page: Path, tmp_path: Path) -> None:
    first, rising, falling = evaluated(browser, page, tmp_path, SORT)
    assert first[0] == "nova" and falling == rising[::-1] and set(rising) == set(first)
    groups = make_report([page.parent / "run"]).groups
    here = [group for group in groups if group.setting == min(g.setting for g in groups)]
    assert rising == [g.strategy for g in sorted(here, key=lambda g: g.latency.mean)]  # type: ignore[union-attr]


def test_the_page_allows_its_own_script(browser: str, page: Path, tmp_path: Path) -> None:
    dom = chromium(browser, tmp_path, "--dump-dom", page.as_uri())
    assert dom.count("<button") > 10
    other = tmp_path / "other.html"
    other.write_text(page.read_text().replace("// Sorts", "// sorts"))
    assert "<button" not in chromium(browser, tmp_path, "--dump-dom", other.as_uri())


def test_light_and_dark(browser: str, page: Path, tmp_path: Path) -> None:
    shots = {}
    for scheme, arguments in {"light": [], "dark": [DARK]}.items():
        size = "--window-size=1200,4000"
        found = audit(browser, page, tmp_path, size, *arguments)
        assert found["problems"] == []
        shot = tmp_path / f"{scheme}.png"
        chromium(browser, tmp_path, size, *arguments, f"--screenshot={shot}", page.as_uri())
        pixels = np.asarray(Image.open(shot).convert("L"), dtype=float)
        assert pixels.shape == (4000, 1200)
        # Somewhere in every stretch of a few hundred lines there is something to see.
        stretches = pixels[: pixels.shape[0] // 400 * 400].reshape(-1, 400 * 1200)
        assert (stretches.std(axis=1) > 4).all()
        shots[scheme] = float(np.median(pixels))
    assert shots["light"] > 240 and shots["dark"] < 60


def test_it_prints_on_paper(browser: str, page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    chromium(browser, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri())
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 4 <= pages <= 30
