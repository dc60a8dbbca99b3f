/* The page of a study: hints over dots, the choice of the metric, error by tensor, histograms. */

const fixed = (v, digits) => v === null || v === undefined ? "\u2013" : v !== 0 && Math.abs(v) < 0.5 * 10 ** -digits ? v.toExponential(1) : v.toFixed(digits);
const name = (r) => [r.format, r.method, r.activations, r.kv_cache, r.emulate, r.retrained && "retrained"].filter((text) => text).join(" / ");

tellRows((i) => {
  const r = data.rows[i];
  const metrics = data.metrics.filter((key) => key !== "sqnr_db").map((key) => `\n${key} ${fixed(r[key], 4)}`).join("");
  const loss = r.sqnr_db === null ? "exact" : `SQNR ${fixed(r.sqnr_db, 1)} dB`;
  const speed = r.speed ? `\nmatmuls ${r.speed.toFixed(2)} x the speed of ${data.rows[0].format}` : "";
  return `${name(r)}\n${fixed(r.bits, 2)} bits per value${metrics}\n${loss}${speed}`;
});

const choice = $("metric");
if (choice) choice.addEventListener("change", () => {
  document.querySelectorAll("[data-metric]").forEach((figure) => { figure.hidden = figure.dataset.metric !== choice.value; });
  $("scatter-words").textContent = data.words[choice.selectedIndex];
});

const heat = () => {
  const { names, shapes, formats, sqnr, of, leftOut } = data.layers;
  if (!names.length || !formats.length) { $("layers-section").remove(); return; }
  const flip = formats.length > names.length;
  const rows = flip ? formats : names, columns = flip ? names : formats;
  const low = 5, middle = 20, high = 45; // dB: hardly a signal, a tenth of the amplitude lost, as good as exact
  const head = make("tr", {}, make("th"), ...columns.map((c) => make("th", { scope: "col" }, c)));
  const body = make("tbody");
  rows.forEach((r, i) => {
    const th = make("th", { scope: "row" }, r), tr = make("tr", {}, th);
    if (!flip) tip(th, `${r}\n${shapes[i]}`);
    columns.forEach((c, j) => {
      const v = flip ? sqnr[j][i] : sqnr[i][j];
      const td = make("td", {}, v === "" ? "" : v === null ? "exact" : v.toFixed(1));
      tr.append(td);
      if (v === "") return;
      const at = v === null ? 1 : v < middle ? Math.max(-1, (v - middle) / (middle - low)) : Math.min(1, (v - middle) / (high - middle));
      td.style.background = `rgba(var(${at < 0 ? "--bad" : "--good"}), ${(Math.abs(at) * 0.5 + 0.03).toFixed(2)})`;
      const k = flip ? j : i;
      tip(td, `${names[k]} (${shapes[k]})\n${flip ? r : c}\n${v === null ? "exact" : v.toFixed(2) + " dB"}`);
    });
    body.append(tr);
  });
  $("heat").classList.toggle("dense", columns.length > 12);
  $("heat").append(make("thead", {}, head), body);
  $("of-what").textContent = of;
  if (leftOut) $("left-out").textContent = `${leftOut} more tensors are left out here.`; else $("left-out").remove();
};
heat();

const ticks = (reach, count) => {
  const raw = 2 * reach / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), most = Math.floor(reach / step + 1e-9);
  return Array.from({ length: 2 * most + 1 }, (_, i) => (i - most) * step).map((v) => [v, v.toFixed(digits)]);
};
const draw = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const histogram = () => {
  const one = data.histograms[$("hist-layer").selectedIndex], fmt = $("hist-format").value;
  const W = $("hist").clientWidth || 600, H = W < 600 ? 220 : 300, L = 14, R = 14, T = 12, B = 30;
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "histogram", "font-size": 12 });
  const X = (v) => L + (v + one.range) / (2 * one.range) * (W - L - R);
  const most = Math.max(...one.counts), step = (W - L - R) / one.counts.length;
  one.counts.forEach((n, i) => {
    const h = n / most * (H - T - B);
    if (h) svg.append(draw("rect", { x: L + i * step, y: H - B - h, width: step * 0.88, height: h, style: "fill:var(--bars)" }));
  });
  const found = one.levels[fmt];
  if (found) {
    const faint = Math.max(0.36, Math.min(0.9, 36 / found[1].length));
    for (const place of found[1]) {
      const x = L + place / 999 * (W - L - R);
      svg.append(draw("line", { x1: x, x2: x, y1: T, y2: H - B + 5, style: `stroke:var(--${data.families[fmt] || "plain"});stroke-width:1.4;opacity:${faint}` }));
    }
  }
  svg.append(draw("line", { class: "frame", x1: L, x2: W - R, y1: H - B, y2: H - B }));
  for (const [v, text] of ticks(one.range, W < 600 ? 4 : 8)) svg.append(draw("text", { x: X(v), y: H - 8, "text-anchor": "middle" }, text));
  $("hist").replaceChildren(svg);
  const count = found ? found[0] : 0;
  $("hist-words").textContent = `Bars: the values of the whole tensor.` + (found ? ` Lines: the ${count} different value${count === 1 ? "" : "s"} that one row of it, number ${one.row}, takes in ${fmt}; every row, or every group in it, has its own scale.` : "") + (one.outside > 0 ? ` ${(one.outside * 100).toPrecision(1)} % of the values lie outside the picture.` : "");
};
if (data.histograms.length) {
  $("hist-layer").append(...data.histograms.map((one) => make("option", {}, one.name)));
  const formats = [...new Set(data.histograms.flatMap((one) => Object.keys(one.levels)))];
  $("hist-format").append(...formats.map((fmt) => make("option", {}, fmt)));
  const good = formats.find((fmt) => fmt.startsWith("vsq4-g16-s4")) || formats[0];
  if (good) $("hist-format").value = good;
  for (const id of ["hist-layer", "hist-format"]) $(id).addEventListener("change", histogram);
  addEventListener("resize", histogram);
  histogram();
} else $("hist-section").remove();
