"""The page of a mapping, operated in a real browser, shows the counts of `evaluate`."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from common import HANG, bad_argument

from heterocompute.hardware import mapper

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

COSTS = {"read": 6.0, "write": 5.0, "update": 7.0}
LAYER = mapper.Problem.conv2d(c=8, k=12, p=6, q=6, r=3, s=3, stride=2)
EYERISS = mapper.Arch(
    [
        mapper.Level("DRAM", block=4, read=200.0, write=190.0, update=210.0, bandwidth=2),
        mapper.Level("GLB", words=600, leak=0.25, keeps={"I", "O"}, **COSTS),
        mapper.Level("Columns", keeps=set(), instances=2),
        mapper.Level("RF", words={"W": 24, "I": 12, "O": 24}, instances=12, read=1.0, write=1.0, update=1.0, cluster=5),
    ],
    mac=0.5,
)
SPARSE = mapper.Problem(
    LAYER.dims, LAYER.tensors, "O", densities={"W": mapper.Density(0.35, "uniform"), "I": mapper.Density.n_of_m(2, 4)}
)
SPARSE_ARCH = mapper.Arch(
    [
        mapper.Level("DRAM", read=200.0, write=190.0, update=210.0, compress={"W": 4}),
        mapper.Level("GLB", words=500, instances=2, compress={"W": 4, "I": 2}, **COSTS),
        mapper.Level("RF", words=60, instances=16, skip={"O": {"W"}, "I": {"W"}}, gate={"W": {"I"}}, **COSTS),
    ],
    mac=0.5,
    macs=32,
)

# Moves sliders and menus randomly, like a user, and records the values on the page.
DRIVE = """
<script>
let seed = 12345;
const chance = count => {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return Math.floor(seed / 2147483648 * count);
};
const all = selector => [...document.querySelectorAll(selector)];
const seen = [];
for (let move = 0; move < 160; move++) {
  if (move % 6 === 0) {  // back to the mapping that fits, or little ever would
    Object.assign(mapping, structuredClone(data.start));
    show();
  }
  const choosers = all("select"), ranges = all("input[type=range]:enabled");
  if (chance(4) === 0) {
    const menu = choosers[chance(choosers.length)];
    menu.selectedIndex = chance(menu.options.length);
    menu.dispatchEvent(new Event("change"));
  } else {
    const range = ranges[chance(ranges.length)];
    range.value = chance(Number(range.max) + 1);
    range.dispatchEvent(new Event("input"));
  }
  const value = node => Number(node.dataset.value);
  const rows = all("#traffic tr").map(row => [row.dataset.level, row.dataset.tensor,
    Object.fromEntries([...row.querySelectorAll("[data-key]")].map(cell => [cell.dataset.key, value(cell)]))]);
  const totals = Object.fromEntries(all("[data-total]").map(node => [node.dataset.total, value(node)]));
  const bounds = all("input[type=range]").map(range =>
    [range.dataset.kind, range.dataset.level, range.dataset.dim, Number(range.nextElementSibling.textContent)]);
  const orders = choosers.map(menu => [menu.dataset.order, menu.value]);
  seen.push({rows, totals, bounds, orders, fault: document.getElementById("fault").textContent});
}
document.body.append(Object.assign(document.createElement("pre"), {id: "seen", textContent: JSON.stringify(seen)}));
</script>
"""


def mapping_shown(problem: mapper.Problem, arch: mapper.Arch, state: dict[str, Any]) -> mapper.Mapping:
    """Return the mapping that the sliders and menus of the page represent."""
    factors: dict[tuple[str, str], dict[str, int]] = {}
    left = dict(problem.dims)
    for kind, level, dim, bound in state["bounds"]:
        factors.setdefault((kind, level), {})[dim] = bound
        left[dim] //= bound
    factors["temporal", arch.names[0]] = left
    orders = {level: order.split() for level, order in state["orders"]}
    temporal = {
        level: [(dim, found[dim]) for dim in orders.get(level, list(problem.dims)) if dim in found]
        for (kind, level), found in factors.items()
        if kind == "temporal"
    }
    spatial = {level: list(found.items()) for (kind, level), found in factors.items() if kind == "spatial"}
    return mapper.Mapping(temporal, spatial)


@needs_browser
@pytest.mark.parametrize(("problem", "arch"), [(LAYER, EYERISS), (SPARSE, SPARSE_ARCH)], ids=["dense", "sparse"])
@pytest.mark.sweep(every=2)
def test_sliders_show_what_evaluate_counts(problem: mapper.Problem, arch: mapper.Arch, tmp_path: Path) -> None:
    start = mapper.search(problem, arch, budget=2_000).mapping
    path = tmp_path / "page.html"
    path.write_text(mapper.mapping_page(problem, arch, start).replace("</body>", DRIVE + "</body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=HANG, check=True,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},  # a sanitizer is not for it
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    states = json.loads(html.unescape(found[1]))
    assert len(states) == 160
    fitting = faults = 0
    for state in states:
        mapping = mapping_shown(problem, arch, state)
        if state["fault"]:
            faults += 1
            with pytest.raises(ValueError) as caught:
                mapper.evaluate(problem, arch, mapping)
            assert str(caught.value) == state["fault"]
            continue
        fitting += 1
        stats = mapper.evaluate(problem, arch, mapping)
        assert {(level, tensor) for level, tensor, _ in state["rows"]} == set(stats.accesses)
        for level, tensor, counts in state["rows"]:
            access = stats[level, tensor]
            for key in ("tile", "reads", "fills", "updates", "instances"):
                assert counts[key] == getattr(access, key), (str(mapping), level, tensor, key)
            assert counts["energy"] == pytest.approx(access.energy, rel=1e-12)
        assert state["totals"]["cycles"] == stats.cycles
        assert state["totals"]["energy"] == pytest.approx(stats.energy, rel=1e-12)
        assert state["totals"]["utilisation"] == stats.utilisation
        assert state["totals"]["share"] == pytest.approx(stats.arithmetic_share, rel=1e-12)
    assert fitting >= 20 and faults >= 5


def test_the_page_fetches_nothing_and_cannot_be_broken_out_of() -> None:
    hostile = "</script><img src=x onerror=alert(1)>{{data}}"
    problem = mapper.Problem({hostile: 2}, {"O": [{hostile: 1}]}, "O")
    page = mapper.mapping_page(problem, mapper.Arch([mapper.Level(hostile), mapper.Level("B", words=8)]), title=hostile)
    assert page.count("<script>") == page.count("</script>") == 1 and "<img" not in page
    assert not re.findall(r"https?://|@import|url\(", page)
    data = json.loads(re.search(r"const data = (.*);\n", page)[1])
    assert list(data["dims"]) == [hostile] and data["levels"][0]["name"] == hostile


def test_a_mapping_that_the_page_cannot_show_is_refused() -> None:
    arch = mapper.Arch([mapper.Level("DRAM"), mapper.Level("B")])
    twice = mapper.Mapping({"DRAM": [("M", 2), ("N", 2), ("M", 2)], "B": [("K", 2)]})
    with bad_argument(ValueError, "DRAM", "value"):
        mapper.mapping_page(mapper.Problem.gemm(4, 2, 2), arch, twice)
