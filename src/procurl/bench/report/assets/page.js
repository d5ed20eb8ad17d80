/* Draws the report from the data in the page. Statistics were computed when the page was made; here nothing is estimated.
   All names are the user's: they reach the page as text, never as HTML. */
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
  const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
  const state = { study: 0, off: new Set(), window: 0, band: "se", frame: 0, x: 0, y: 1, d: 0, metric: "success", close: true, sort: "mean", up: false, reference: "" };
  const charts = new Map(); // canvas -> Chart, so that none is left behind
  let timer = null;

  // ------------------------------------------------------------------ small things

  function element(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const study = () => data.studies[state.study];
  const shown = () => study().strategies.filter((s) => !state.off.has(s.label));
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const colour = (s) => (isDark() && s.colour === "#000000" ? "#f4f4f4" : s.colour);
  const faint = (hex, part) => hex + Math.round(part * 255).toString(16).padStart(2, "0");
  const known = (x) => x !== null && x !== undefined;
  const fixed = (x) => (known(x) ? x.toFixed(study().decimals) : "–");
  const percent = (x, digits = 0) => (known(x) ? `${(100 * x).toFixed(digits)} %` : "–");
  const interval = (pair) => (pair && known(pair[0]) ? `[${fixed(pair[0])}, ${fixed(pair[1])}]` : "no interval");
  const count = (n) => n.toLocaleString("en-GB");
  const words = (name) => name.replaceAll("_", " ");
  const plural = (n, word, many = `${word}s`) => `${count(n)} ${n === 1 ? word : many}`;
  const short = (x) => Number(x.toPrecision(3)).toString();
  function steps(n) {
    if (n >= 1e6) return `${Number((n / 1e6).toPrecision(3))}M`;
    return n >= 1e3 ? `${Number((n / 1e3).toPrecision(3))}k` : `${n}`;
  }
  function swatch(s) {
    const mark = element("span", { class: "swatch", "aria-hidden": "true" });
    mark.style.borderTopColor = colour(s);
    mark.style.borderTopStyle = s.dash === 0 ? "solid" : s.dash % 2 ? "dashed" : "dotted";
    return mark;
  }
  function options(select, entries, value) {
    select.replaceChildren(...entries.map(([v, text]) => {
      const option = element("option", { value: v });
      option.textContent = text;
      return option;
    }));
    select.value = value;
  }
  function viridis(part) {
    const place = Math.min(Math.max(part, 0), 1) * (VIRIDIS.length - 1);
    const k = Math.min(Math.floor(place), VIRIDIS.length - 2);
    const channel = (hex, c) => parseInt(hex.slice(1 + 2 * c, 3 + 2 * c), 16);
    const mix = [0, 1, 2].map((c) => Math.round(channel(VIRIDIS[k], c) + (place - k) * (channel(VIRIDIS[k + 1], c) - channel(VIRIDIS[k], c))));
    return `rgb(${mix.join(",")})`;
  }
  function table(head, rows, caption) {
    const name = element("caption", { class: "unseen" }, caption);
    const top = element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)));
    const body = rows.map((row) => element("tr", {}, ...row.map((cell, k) => element(k ? "td" : "th", k ? {} : { scope: "row" }, cell))));
    return element("table", {}, name, element("thead", {}, top), element("tbody", {}, ...body));
  }
  function lazy(id, make) { // a table is made when somebody opens it, and again when what it shows has changed
    const details = $(id);
    details.make = () => details.open && details.querySelector(".scroll").replaceChildren(make());
    details.addEventListener("toggle", details.make);
  }
  const refresh = (...ids) => ids.forEach((id) => $(id).make());

  // ------------------------------------------------------------------ charts

  function draw(canvas, config) {
    charts.get(canvas)?.destroy();
    const chart = new Chart(canvas, config);
    charts.set(canvas, chart);
    return chart;
  }
  function axis(title, more = {}) {
    return {
      type: "linear", border: { color: style("--line") }, grid: { color: style("--grid") },
      ticks: { color: style("--soft"), maxRotation: 0, autoSkipPadding: 12, ...more.ticks },
      title: { display: Boolean(title), text: title, color: style("--soft") }, ...Object.fromEntries(Object.entries(more).filter(([k]) => k !== "ticks")),
    };
  }
  function frameOf(scales, more = {}) {
    return {
      animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true, scales,
      ...more, plugins: { legend: { display: false }, ...more.plugins },
    };
  }
  const stepAxis = () => axis("environment steps", { min: 0, max: Math.max(1, ...study().strategies.map((s) => s.steps.at(-1))), ticks: { includeBounds: false, callback: (v) => steps(v) } });
  const line = (s, points, more = {}) => ({
    label: s.label, data: points, borderColor: colour(s), backgroundColor: colour(s), borderWidth: 2, borderDash: DASHES[s.dash % 4],
    pointRadius: points.length < 2 ? 4 : 0, pointHitRadius: 8, pointHoverRadius: 4, tension: 0, spanGaps: true, ...more,
  });
  const along = (xs, ys) => xs.map((x, k) => ({ x, y: ys[k] })).filter((p) => known(p.y));

  function band(s, curve) { // lower and upper edge of the band
    if (state.band === "ci" && curve.low) return [curve.low, curve.high];
    if (state.band !== "se" || !curve.error) return null;
    const edge = (sign) => curve.mean.map((m, k) => (known(curve.error[k]) ? m + sign * curve.error[k] : null));
    return [edge(-1), edge(1)];
  }

  const clipped = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);
  const names = { // at the end of each curve, where there is room: a legend that needs no colours
    id: "names",
    beforeLayout(chart) {
      const lines = chart.data.datasets.filter((set) => !set.edge);
      chart.named = chart.width >= 640 && lines.length <= 16;
      chart.ctx.font = "12px system-ui, sans-serif";
      const width = Math.max(0, ...lines.map((set) => chart.ctx.measureText(clipped(set.label)).width));
      chart.options.layout.padding = { right: chart.named ? width + 12 : 0 };
    },
    afterDatasetsDraw(chart) {
      if (!chart.named) return;
      const { ctx, chartArea } = chart;
      const ends = chart.data.datasets.flatMap((set, d) => (set.edge || !set.data.length ? [] : [{ set, y: chart.getDatasetMeta(d).data.at(-1).y }])).sort((a, b) => a.y - b.y);
      for (let k = 1; k < ends.length; k++) ends[k].y = Math.max(ends[k].y, ends[k - 1].y + 14);
      let room = chartArea.bottom;
      for (const end of ends.toReversed()) { // those pushed below the axis come up again
        end.y = Math.min(end.y, room);
        room = end.y - 14;
      }
      ctx.save();
      ctx.font = "12px system-ui, sans-serif";
      ctx.textBaseline = "middle";
      for (const { set, y } of ends) {
        ctx.fillStyle = set.borderColor;
        ctx.fillRect(chartArea.right + 3, y - 1, 5, 2);
        ctx.fillStyle = style("--text");
        ctx.fillText(clipped(set.label), chartArea.right + 11, y);
      }
      ctx.restore();
    },
  };

  function drawCurves() {
    const sets = [];
    for (const s of shown()) {
      const curve = s.curves[state.window];
      if (!curve.mean) continue;
      sets.push(line(s, along(s.steps, curve.mean), { order: 1, strategy: s }));
      const edges = band(s, curve);
      if (edges) {
        const flat = { borderWidth: 0, pointRadius: 0, pointHitRadius: 0, pointHoverRadius: 0, edge: true, order: 3 };
        sets.push({ ...line(s, along(s.steps, edges[0])), ...flat });
        sets.push({ ...line(s, along(s.steps, edges[1])), ...flat, backgroundColor: faint(colour(s), 0.16), fill: "-1" });
      }
      if (state.band === "seeds" && s.ret) {
        const thin = { borderWidth: 1, borderColor: faint(colour(s), 0.35), pointRadius: 0, pointHitRadius: 0, pointHoverRadius: 0, edge: true, order: 4 };
        for (const row of s.ret) sets.push({ ...line(s, along(s.steps, row)), ...thin });
      }
    }
    const canvas = $("curve-chart");
    draw(canvas, {
      type: "line", data: { datasets: sets }, plugins: [names],
      options: frameOf({ x: stepAxis(), y: axis("return on target tasks") }, {
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: {
          tooltip: {
            filter: (item) => !item.dataset.edge, itemSort: (a, b) => b.parsed.y - a.parsed.y,
            callbacks: { title: (items) => (items.length ? `${count(items[0].parsed.x)} steps` : ""), label: (item) => ` ${item.dataset.label}: ${reading(item.dataset.strategy, item.parsed.x)}` },
          },
        },
      }),
    });
    canvas.setAttribute("aria-label", `Learning curves on ${study().title}. ${final(shown())}. The same numbers are in the table below.`);
    $("curve-live").textContent = "";
    canvas.place = -1;
    refresh("curve-table");
  }
  const final = (list) => list.map((s) => (!s.ranked ? `${s.label} was cut short after ${count(s.steps.at(-1))} steps` : `${s.label} ends at ${fixed(s.summary.mean)}`)).join(", ") || "No strategy is chosen";
  function reading(s, at) {
    const k = s.steps.indexOf(at), curve = s.curves[state.window];
    const edges = band(s, curve);
    if (k < 0) return "–";
    if (state.band === "ci" && edges) return `${fixed(curve.mean[k])} [${fixed(edges[0][k])}, ${fixed(edges[1][k])}]`;
    return known(curve.error?.[k]) ? `${fixed(curve.mean[k])} ± ${fixed(curve.error[k])}` : fixed(curve.mean[k]);
  }
  function readOut(event) { // arrow keys on the curves
    const grid = [...new Set(shown().flatMap((s) => s.steps))].sort((a, b) => a - b);
    const canvas = $("curve-chart"), last = grid.length - 1;
    const move = { ArrowRight: canvas.place + 1, ArrowLeft: canvas.place < 0 ? last : canvas.place - 1, Home: 0, End: last }[event.key];
    if (move === undefined || last < 0) return;
    event.preventDefault();
    canvas.place = Math.min(Math.max(move, 0), last);
    const at = grid[canvas.place], chart = charts.get(canvas);
    const active = chart.data.datasets.flatMap((set, d) => {
      const index = set.edge ? -1 : set.data.findIndex((p) => p.x === at);
      return index < 0 ? [] : [{ datasetIndex: d, index }];
    });
    chart.setActiveElements(active);
    chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
    chart.update("none");
    $("curve-live").textContent = `${count(at)} steps: ${shown().map((s) => `${s.label} ${reading(s, at)}`).join("; ")}`;
  }
  function curveTable() {
    const grid = [...new Set(shown().flatMap((s) => s.steps))].sort((a, b) => a - b);
    const rows = grid.map((at) => [count(at), ...shown().map((s) => reading(s, at))]);
    return table(["steps", ...shown().map((s) => s.label)], rows, `Learning curves on ${study().title}`);
  }

  function drawProfiles() {
    const sets = shown().filter((s) => s.profile).map((s) => line(s, along(study().thresholds, s.profile), { stepped: false }));
    const canvas = $("profile-chart");
    draw(canvas, {
      type: "line", data: { datasets: sets },
      options: frameOf({ x: axis("final return"), y: axis("share of seeds above it", { min: 0, max: 1, ticks: { callback: (v) => percent(v) } }) }, {
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: { tooltip: { itemSort: (a, b) => b.parsed.y - a.parsed.y, callbacks: {
          title: (items) => (items.length ? `above ${fixed(items[0].parsed.x)}` : ""), label: (item) => ` ${item.dataset.label}: ${percent(item.parsed.y)} of seeds`,
        } } },
      }),
    });
    canvas.setAttribute("aria-label", `Share of seeds whose final return lies above a threshold, on ${study().title}; as a table below.`);
    refresh("profile-table");
  }
  function profileTable() {
    const rows = study().thresholds.flatMap((at, k) => (k % 5 ? [] : [[`above ${fixed(at)}`, ...shown().map((s) => percent(s.profile?.[k]))]]));
    return table(["final return", ...shown().map((s) => s.label)], rows, "Share of seeds above a final return");
  }

  // ------------------------------------------------------------------ statistics

  function pair(s, reference) { // [difference, low, high, P(better)] of s against the reference
    const i = study().strategies.indexOf(s), j = study().strategies.indexOf(reference);
    for (const [a, b, difference, low, high, better] of study().pairs) {
      if (a === i && b === j) return [difference, low, high, better];
      if (a === j && b === i) return [-difference, known(high) ? -high : null, known(low) ? -low : null, 1 - better];
    }
    return null;
  }
  function columns(reference) {
    const small = (text) => element("small", {}, text);
    return [
      { key: "label", head: "Strategy", of: (s) => s.label, cell: (s) => [swatch(s), ` ${s.label}`] },
      { key: "seeds", head: "Seeds", of: (s) => s.summary.n_seeds - s.summary.n_failed, cell: (s) => [count(s.summary.n_seeds - s.summary.n_failed), ...(s.summary.n_failed ? [small(`${s.summary.n_failed} failed`)] : []), ...(s.cut ? [small(`${s.cut} cut short`)] : []), small(`${s.unfinished ? `${steps(s.steps.at(-1))} of ${steps(s.planned)}` : steps(s.steps.at(-1))} steps`)] },
      { key: "mean", head: "Final return", best: true, of: (s) => s.summary.mean, cell: (s) => [known(s.summary.error) ? `${fixed(s.summary.mean)} ± ${fixed(s.summary.error)}` : fixed(s.summary.mean), small(interval(s.summary.mean_interval))] },
      { key: "iqm", head: "IQM", best: true, of: (s) => s.summary.iqm, cell: (s) => [fixed(s.summary.iqm), small(interval(s.summary.iqm_interval))] },
      { key: "area", head: "Mean over training", best: true, of: (s) => s.summary.area, cell: (s) => [fixed(s.summary.area), small(known(s.summary.area_error) ? `± ${fixed(s.summary.area_error)}` : "no error")] },
      { key: "success", head: "Success", best: true, of: (s) => s.success, cell: (s) => [percent(s.success, 1)] },
      { key: "threshold", head: `Steps to ${short(study().threshold)}`, of: (s) => s.summary.steps_to_threshold, cell: (s) => [known(s.summary.steps_to_threshold) ? steps(s.summary.steps_to_threshold) : "–", small(known(s.summary.reached) ? `${percent(s.summary.reached)} of seeds` : "not recorded")] },
      { key: "difference", head: `Minus ${reference?.label ?? ""}`, of: (s) => pair(s, reference)?.[0], cell: (s) => { const p = pair(s, reference); return p ? [`${p[0] > 0 ? "+" : ""}${fixed(p[0])}`, small(interval([p[1], p[2]]))] : ["–"]; } },
      { key: "better", head: "P(better)", of: (s) => pair(s, reference)?.[3], cell: (s) => [percent(pair(s, reference)?.[3])] },
      { key: "speed", head: "Steps per second", of: (s) => s.speed, cell: (s) => [known(s.speed) ? steps(s.speed) : "–"] },
      { key: "share", head: "Teacher's time", of: (s) => s.teacher_share, cell: (s) => [percent(s.teacher_share, 1)] },
    ];
  }
  function drawStatistics() {
    const list = study().strategies;
    const preferred = list.find((s) => s.label === state.reference) ?? list.find((s) => s.teacher === "IID") ?? list[0];
    options($("reference"), list.map((s) => [s.label, s.label]), preferred.label);
    const recorded = (c) => !["success", "threshold"].includes(c.key) || list.some((s) => known(c.of(s)) || known(s.summary.reached));
    const cols = columns(preferred).filter(recorded), by = cols.find((c) => c.key === state.sort) ?? cols.find((c) => c.key === "mean");
    const value = (s) => by.of(s);
    const rows = [...list].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (!known(x) || !known(y)) return known(y) - known(x); // what is missing comes last, either way
      const order = typeof x === "string" ? x.localeCompare(y) : x - y;
      return state.up ? order : -order;
    });
    const best = Object.fromEntries(cols.filter((c) => c.best).map((c) => [c.key, Math.max(...list.map((s) => c.of(s) ?? -Infinity))]));
    const head = cols.map((c) => {
      const button = element("button", { type: "button", "data-sort": c.key }, c.head);
      button.addEventListener("click", () => {
        state.up = state.sort === c.key ? !state.up : c.key === "label";
        state.sort = c.key;
        drawStatistics();
        document.querySelector(`[data-sort="${c.key}"]`).focus();
      });
      return element("th", { scope: "col", ...(by.key === c.key ? { "aria-sort": state.up ? "ascending" : "descending" } : {}) }, button);
    });
    const body = rows.map((s) => element("tr", state.off.has(s.label) ? { class: "off" } : {}, ...cols.map((c, k) =>
      element(k ? "td" : "th", k ? (c.best && list.length > 1 && c.of(s) === best[c.key] ? { class: "best" } : {}) : { scope: "row" }, ...c.cell(s)))));
    $("statistics-table").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
    const top = rows.length && [...list].filter((s) => known(s.summary.mean)).sort((a, b) => b.summary.mean - a.summary.mean);
    const cut = list.filter((s) => !s.ranked).map((s) => `${s.label} (after ${count(s.steps.at(-1))} of ${count(s.planned)} steps)`);
    $("statistics-lead").textContent = verdict(top || []) + (cut.length ? ` Cut short, and not ranked: ${cut.join(", ")}.` : "");
  }
  function verdict(top) { // one sentence, and no more than the intervals allow
    if (top.length === 0) return "No strategy got to its end with a finite result.";
    if (top.length === 1) return `${top[0].label} ends at ${fixed(top[0].summary.mean)}.`;
    const p = pair(top[0], top[1]);
    const gap = p && known(p[1]) ? (p[1] > 0 ? "the 95 % interval of the difference excludes 0" : "the 95 % interval of the difference includes 0: not settled") : "too few seeds for an interval";
    const seeds = Math.min(...top.slice(0, 2).map((s) => s.summary.n_seeds - s.summary.n_failed));
    const few = p && known(p[1]) && seeds < 10 ? ` With ${seeds} seeds such an interval is too narrow; trust it little.` : "";
    return `Highest final return: ${top[0].label} (${fixed(top[0].summary.mean)}), then ${top[1].label} (${fixed(top[1].summary.mean)}); ${gap}.${few}`;
  }

  // ------------------------------------------------------------------ what was taught

  const frames = () => Math.max(study().edges.length - 1, 0);
  const taught = () => shown().filter((s) => s.curriculum);
  const isFamilies = () => study().strategies.some((s) => s.curriculum?.families);
  const label = (x) => study().space.labels?.[Math.round(x)]; // of a task that is a name: its context is the name's index
  const inWords = (x) => label(x) ?? short(x);
  function real(q, d) { // from the grid back to the context
    const { low, high } = study().space;
    return low[d] + (q / data.limits.grid) * (high[d] - low[d] || 1);
  }
  function points(flat) { // contexts in the two chosen dimensions; a space of one dimension is spread out upwards
    const n = study().space.names.length, list = [];
    for (let k = 0; k * n < flat.length; k++) {
      list.push({ x: real(flat[k * n + state.x], state.x), y: n > 1 ? real(flat[k * n + state.y], state.y) : (k + 0.5) * n / flat.length });
    }
    return list;
  }
  function spaceAxis(d, close = false) { // close: only as much of the space as the held-out tasks take
    const { names, low, high } = study().space;
    if (names.length === 1 && d === "y") return axis("", { min: 0, max: 1, ticks: { display: false } });
    const k = d === "x" ? state.x : state.y;
    let [from, to] = [low[k], high[k]];
    if (close) {
      const there = study().targets.contexts.filter((_, i) => i % names.length === k).map((q) => real(q, k));
      const [least, most] = [Math.min(...there), Math.max(...there)];
      if (most > least) [from, to] = [least, most];
    }
    const margin = 0.05 * (to - from || 1);
    const marks = study().space.labels ? study().space.labels.map((_, i) => i).filter((i) => i >= from && i <= to) : [from, (from + to) / 2, to];
    const ends = (scale) => { scale.ticks = marks.map((value) => ({ value })); };
    return axis(words(names[k]), { min: from - margin, max: to + margin, afterBuildTicks: ends, ticks: { callback: inWords } });
  }
  function panel(box, label) {
    const canvas = element("canvas", { role: "img" });
    const caption = element("figcaption", {});
    caption.append(...label);
    const text = element("p", {});
    box.append(element("figure", {}, caption, element("div", { class: "chart" }, canvas), text));
    return { canvas, text };
  }
  function clear(box) {
    for (const canvas of box.querySelectorAll("canvas")) {
      charts.get(canvas)?.destroy();
      charts.delete(canvas);
    }
    box.replaceChildren();
  }
  function drawTaught() {
    const box = $("taught-panels"), some = frames() > 0 && study().strategies.some((s) => s.curriculum);
    clear(box);
    stop();
    $("taught-body").hidden = !some;
    $("taught-lead").textContent = !some ? "The tasks that were chosen are not in these files."
      : isFamilies() ? `The share of each ${study().space?.labels ? "task" : "of MiniG's families"} among the tasks that each strategy chose; the target is ${study().families.names.filter((_, k) => study().families.targets[k]).join(", ") || "not in these files"}.`
      : `The tasks that each strategy chose in the course of training, beside the target. At most ${data.limits.points} per strategy and moment are drawn, a fair sample.`;
    $("taught-words").replaceChildren(...shown().filter((s) => s.taught).map((s) => element("li", {}, `${s.label}: ${s.taught}`)));
    if (!some) return;
    $("frame").max = frames() - 1;
    $("frame").value = state.frame = Math.min(state.frame, frames() - 1);
    for (const node of document.querySelectorAll(".dimension")) node.hidden = isFamilies() || study().space.names.length < 2;
    box.classList.toggle("one", isFamilies());
    if (isFamilies()) {
      const { canvas, text } = panel(box, []);
      canvas.parentElement.style.height = `${70 + 34 * Math.max(taught().length, 1)}px`;
      box.families = { canvas, text };
      draw(canvas, {
        type: "bar",
        data: { labels: taught().map((s) => s.label), datasets: study().families.names.map((name, k) => ({ label: name, data: [], backgroundColor: study().families.colours[k], borderWidth: 0 })) },
        options: { ...frameOf({ x: axis("share of the chosen tasks", { stacked: true, min: 0, max: 1, ticks: { callback: (v) => percent(v) } }), y: { stacked: true, grid: { display: false }, ticks: { color: style("--text") }, border: { color: style("--line") } } }), parsing: true, indexAxis: "y", plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => ` ${item.dataset.label}: ${percent(item.raw, 1)}` } } } },
      });
      $("taught-key").replaceChildren(...study().families.names.map((name, k) => {
        const mark = element("span", { class: "swatch square", "aria-hidden": "true" });
        mark.style.backgroundColor = study().families.colours[k];
        return element("span", {}, mark, name + (study().families.targets[k] ? " (target)" : ""));
      }));
    } else {
      const targets = study().targets ? points(study().targets.contexts) : [];
      for (const s of taught()) {
        const { canvas, text } = panel(box, [swatch(s), ` ${s.label}`]);
        canvas.strategy = s;
        canvas.words = text;
        draw(canvas, {
          type: "scatter",
          data: { datasets: [
            { label: "chosen", data: [], pointRadius: innerWidth < 600 ? 1.9 : 2.6, pointHoverRadius: 4, backgroundColor: faint(colour(s), 0.75), borderWidth: 0, order: 1 },
            { label: "target", data: targets, pointStyle: "crossRot", pointRadius: targets.length > 20 || innerWidth < 600 ? 3.2 : 5, borderColor: faint(isDark() ? "#ff9ecb" : "#b0005a", targets.length > 20 ? 0.45 : 1), borderWidth: 1.4, order: 2 },
          ] },
          options: frameOf({ x: spaceAxis("x"), y: spaceAxis("y") }, { plugins: { tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${short(item.parsed.x)}, ${short(item.parsed.y)}` } } } }),
        });
      }
      $("taught-key").textContent = "Dots: chosen tasks. Crosses: held-out tasks of the target distribution.";
    }
    drawDistance();
    moveTo(state.frame);
  }
  function moveTo(frame) { // the slider's work: new points in the same charts
    state.frame = frame;
    $("frame").value = frame;
    const [from, to] = [study().edges[frame], study().edges[frame + 1]];
    const span = `steps ${count(from)} to ${count(to)}`;
    $("frame").setAttribute("aria-valuetext", span);
    $("frame-text").textContent = `${span[0].toUpperCase()}${span.slice(1)}, moment ${frame + 1} of ${frames()}`;
    const box = $("taught-panels");
    if (isFamilies()) {
      const { canvas, text } = box.families, chart = charts.get(canvas);
      chart.data.datasets.forEach((set, k) => { set.data = taught().map((s) => s.curriculum.families?.[frame][k] ?? null); });
      chart.update("none");
      const onTarget = (shares) => shares?.reduce((sum, x, k) => sum + (study().families.targets[k] ? x ?? NaN : 0), 0);
      text.textContent = taught().map((s) => `${s.label}: ${percent(onTarget(s.curriculum.families?.[frame]))} target tasks`).join("; ");
      canvas.setAttribute("aria-label", `Shares of the tasks at ${span}. ${text.textContent}`);
    } else {
      for (const canvas of box.querySelectorAll("canvas")) {
        const s = canvas.strategy, chart = charts.get(canvas), drawn = points(s.curriculum.points[frame]);
        chart.data.datasets[0].data = drawn;
        chart.update("none");
        const gap = s.curriculum.distance?.[frame];
        const far = gap ? ` Distance to target: ${gap.map((x, d) => `${words(study().space.names[d])} ${short(x)}`).join(", ")}.` : "";
        canvas.words.textContent = drawn.length ? `${count(drawn.length)} of ${count(s.curriculum.counts[frame])} tasks.${far}` : "No task is known here.";
        canvas.setAttribute("aria-label", `${s.label}, tasks chosen at ${span}. ${canvas.words.textContent}`);
      }
    }
    charts.get($("distance-chart"))?.update("none");
    refresh("taught-table");
  }
  function taughtTable() {
    const f = state.frame, span = `${count(study().edges[f])} to ${count(study().edges[f + 1])} steps`;
    if (isFamilies()) {
      return table(["strategy", ...study().families.names], taught().map((s) => [s.label, ...(s.curriculum.families?.[f] ?? []).map((x) => percent(x, 1))]), `Shares of the tasks, ${span}`);
    }
    const names = study().space.names, n = names.length;
    const rows = taught().map((s) => {
      const flat = s.curriculum.points[f], gap = s.curriculum.distance?.[f];
      const means = names.map((_, d) => (flat.length ? short(real(flat.filter((_, k) => k % n === d).reduce((a, b) => a + b, 0) / (flat.length / n), d)) : "–"));
      return [s.label, count(s.curriculum.counts[f]), ...names.flatMap((_, d) => [means[d], gap ? short(gap[d]) : "–"])];
    });
    return table(["strategy", "tasks", ...names.flatMap((x) => [`mean ${words(x)} (of those drawn)`, `${words(x)}: distance to target`])], rows, `Chosen tasks, ${span}`);
  }
  function drawDistance() {
    const some = !isFamilies() && taught().some((s) => s.curriculum.distance);
    $("distance").hidden = !some;
    if (!some) return;
    const edges = study().edges, names = study().space.names;
    const middle = edges.slice(1).map((e, k) => (e + edges[k]) / 2);
    const sets = taught().filter((s) => s.curriculum.distance).map((s) => line(s, along(middle, s.curriculum.distance.map((g) => g?.[state.d]))));
    const marker = { id: "moment", afterDatasetsDraw(chart) { // where the slider stands
      const { ctx, chartArea, scales } = chart, x = scales.x.getPixelForValue(middle[state.frame]);
      ctx.save();
      ctx.strokeStyle = style("--accent");
      ctx.setLineDash([4, 3]);
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
      ctx.restore();
    } };
    const canvas = $("distance-chart");
    draw(canvas, {
      type: "line", data: { datasets: sets }, plugins: [marker],
      options: frameOf({ x: stepAxis(), y: axis(`${words(names[state.d])}: distance`, { min: 0 }) }, {
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: { tooltip: { callbacks: { title: (items) => (items.length ? `about ${steps(items[0].parsed.x)} steps` : ""), label: (item) => ` ${item.dataset.label}: ${short(item.parsed.y)}` } } },
      }),
    });
    canvas.setAttribute("aria-label", `Distance of the chosen tasks to the nearest target in ${words(names[state.d])} over training; the table below has the numbers of the chosen moment.`);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
  }
  function play() {
    if (timer !== null) return stop();
    $("play").textContent = "Pause";
    $("play").setAttribute("aria-pressed", "true");
    if (state.frame >= frames() - 1) moveTo(0);
    timer = setInterval(() => (state.frame >= frames() - 1 ? stop() : moveTo(state.frame + 1)), 250);
  }

  // ------------------------------------------------------------------ what was learnt

  const successKnown = () => study().strategies.some((s) => s.tasks && s.tasks.success.some(known)); // not every environment reports it
  const metric = () => (successKnown() ? state.metric : "ret");
  function drawLearnt() {
    const box = $("learnt-panels"), list = shown().filter((s) => s.tasks), some = study().strategies.some((s) => s.tasks);
    clear(box);
    $("learnt-body").hidden = !some;
    $("metric").parentElement.hidden = !successKnown();
    $("learnt-lead").textContent = !some ? "Results on single held-out tasks are not in these files."
      : `${metric() === "success" ? "Success" : "Return"} at the end on ${plural(study().targets.counts.length, "distinct held-out context")} of the target distribution, mean over seeds.`;
    if (!some) return;
    const [low, high] = metric() === "success" ? [0, 1] : study().value_range;
    const part = (v) => (v - low) / (high - low || 1);
    const say = (v) => (metric() === "success" ? percent(v) : fixed(v));
    const few = study().targets.counts.length <= 3; // as many bars then
    box.classList.toggle("one", few);
    $("learnt-key").hidden = $("view").parentElement.hidden = few;
    if (few) {
      const { canvas, text } = panel(box, []);
      canvas.parentElement.style.height = `${70 + 34 * Math.max(list.length, 1) * study().targets.counts.length}px`;
      const n = study().space.names.length, where = study().targets.counts.map((_, k) => study().space.names.map((name, d) => `${words(name)} ${inWords(real(study().targets.contexts[k * n + d], d))}`).join(", "));
      draw(canvas, {
        type: "bar",
        data: { labels: list.map((s) => s.label), datasets: where.map((name, k) => ({ label: name, base: low, data: list.map((s) => s.tasks[metric()][k]), backgroundColor: list.map((s) => faint(colour(s), 1 - 0.3 * k)) })) },
        options: { ...frameOf({ x: axis(metric() === "success" ? "success" : "return", { min: low, max: high }), y: { grid: { display: false }, ticks: { color: style("--text") }, border: { color: style("--line") } } }), parsing: true, indexAxis: "y" },
      });
      text.textContent = list.map((s) => `${s.label}: ${s.tasks[metric()].map(say).join(", ")}`).join("; ");
      canvas.setAttribute("aria-label", `Final ${metric() === "success" ? "success" : "return"} per held-out context. ${text.textContent}`);
    } else {
      const where = points(study().targets.contexts);
      for (const s of list) {
        const { canvas, text } = panel(box, [swatch(s), ` ${s.label}`]);
        const values = s.tasks[metric()], mean = values.reduce((a, b) => a + b, 0) / values.length;
        draw(canvas, {
          type: "scatter", data: { datasets: [{ label: s.label, data: where, pointRadius: innerWidth < 600 ? 3.2 : 5, pointHoverRadius: 6, backgroundColor: values.map((v) => viridis(part(v))), borderColor: style("--card"), borderWidth: 0.7 }] },
          options: frameOf({ x: spaceAxis("x", state.close), y: spaceAxis("y", state.close) }, { plugins: { tooltip: { callbacks: { label: (item) => `${say(values[item.dataIndex])} at ${label(item.parsed.x) ?? `${short(item.parsed.x)}, ${short(item.parsed.y)}`}` } } } }),
        });
        text.textContent = `Mean over contexts ${say(mean)}, lowest ${say(Math.min(...values))}, highest ${say(Math.max(...values))}.`;
        canvas.setAttribute("aria-label", `${s.label}, final ${metric() === "success" ? "success" : "return"} over the context space. ${text.textContent}`);
      }
      const [first, ramp, last] = $("learnt-key").children, pen = ramp.getContext("2d");
      first.textContent = say(low);
      last.textContent = say(high);
      for (let x = 0; x < ramp.width; x++) {
        pen.fillStyle = viridis(x / (ramp.width - 1));
        pen.fillRect(x, 0, 1, ramp.height);
      }
    }
    refresh("learnt-table");
  }
  function learntTable() {
    const list = shown().filter((s) => s.tasks), { names } = study().space, n = names.length;
    const rows = study().targets.counts.map((_, k) => [
      ...names.map((_, d) => inWords(real(study().targets.contexts[k * n + d], d))),
      ...list.map((s) => (metric() === "success" ? percent(s.tasks.success[k]) : fixed(s.tasks.ret[k]))),
    ]);
    return table([...names.map(words), ...list.map((s) => s.label)], rows, "Final results per held-out context");
  }

  // ------------------------------------------------------------------ configuration, provenance, downloads

  function pairsOf(fields) {
    const list = element("dl");
    for (const [name, value] of Object.entries(fields)) {
      list.append(element("dt", {}, words(name)), element("dd", {}, typeof value === "string" ? value : Array.isArray(value) ? value.join(", ") : JSON.stringify(value)));
    }
    return list;
  }
  function drawOrigin() {
    const box = $("origin-body"), used = [...new Set(study().strategies.flatMap((s) => s.provenance))];
    box.replaceChildren();
    for (const k of used) {
      const whose = study().strategies.filter((s) => s.provenance.includes(k)), dates = [...new Set(whose.flatMap((s) => s.dates))].sort();
      const title = whose.length === study().strategies.length ? "Software and hardware" : `Software and hardware of ${whose.map((s) => s.label).join(", ")}`;
      const fields = pairsOf({ ...(dates.length ? { date: dates.join(", ") } : {}), ...data.provenance[k] });
      if (used.length === 1) box.append(element("h3", {}, title), fields);
      else box.append(element("details", {}, element("summary", {}, title), fields));
    }
    if (used.length === 0) box.append(element("p", { class: "lead" }, "These files do not name the software and hardware that made them."));
    box.append(element("h3", {}, "Strategies"));
    for (const s of study().strategies) {
      const seeds = s.seeds ? ` (seeds ${s.seeds.length > 12 ? `${s.seeds.slice(0, 12).join(", ")}, ...` : s.seeds.join(", ")})` : "";
      box.append(element("details", {}, element("summary", {}, `${s.label}${seeds}`), pairsOf(s.config.teacher ?? {}), element("pre", { tabindex: "0", "aria-label": `Configuration of ${s.label}` }, JSON.stringify(s.config, null, 2))));
    }
  }
  function cell(value) { // for a CSV; text must not look like a formula to a spreadsheet
    if (!known(value)) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  function save(name, text, type) {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    URL.revokeObjectURL(link.href);
  }
  const everyStrategy = () => data.studies.flatMap((t) => t.strategies.map((s) => [t, s]));
  const downloads = {
    "save-curves": () => save("curves.csv", csv([["setting", "strategy", "steps", "mean", "standard_error", "low_95", "high_95"],
      ...everyStrategy().flatMap(([t, s]) => s.steps.map((at, k) => [t.title, s.label, at, ...["mean", "error", "low", "high"].map((c) => s.curves[0][c]?.[k])]))]), "text/csv"),
    "save-seeds": () => save("seeds.csv", csv([["setting", "strategy", "seed", "steps", "return"],
      ...everyStrategy().flatMap(([t, s]) => (s.ret ?? []).flatMap((row, i) => row.map((value, k) => [t.title, s.label, s.seeds[i], s.steps[k], value])))]), "text/csv"),
    "save-statistics": () => save("statistics.csv", csv([["setting", "strategy", ...Object.keys(data.studies[0].strategies[0].summary), "success", "steps_per_second", "teacher_share"],
      ...everyStrategy().map(([t, s]) => [t.title, s.label, ...Object.values(s.summary).map((v) => (Array.isArray(v) ? v.map((x) => x ?? "").join(" to ") : v)), s.success, s.speed, s.teacher_share])]), "text/csv"),
    "save-json": () => save("report.json", JSON.stringify(data), "application/json"),
  };

  // ------------------------------------------------------------------ choices

  function drawChips() {
    $("strategies").replaceChildren(...study().strategies.map((s) => {
      const box = element("input", { type: "checkbox" });
      box.checked = !state.off.has(s.label);
      box.addEventListener("change", () => {
        if (box.checked) state.off.delete(s.label);
        else state.off.add(s.label);
        drawResults();
      });
      return element("label", {}, box, swatch(s), s.label);
    }));
  }
  function drawResults() {
    drawCurves();
    drawStatistics();
    drawProfiles();
    drawTaught();
    drawLearnt();
  }
  function drawAll() {
    const names = study().space?.names ?? [];
    state.x = Math.min(state.x, Math.max(names.length - 1, 0));
    state.y = Math.min(state.y, Math.max(names.length - 1, 0));
    if (state.x === state.y && names.length > 1) [state.x, state.y] = [0, 1];
    state.d = Math.min(state.d, Math.max(names.length - 1, 0));
    for (const [id, key] of [["dim-x", "x"], ["dim-y", "y"], ["dim-distance", "d"]]) options($(id), names.map((n, k) => [k, words(n)]), state[key]);
    const bare = study().strategies.some((s) => !s.ret) ? ["Recorded without the curves of single seeds: no 95 % interval along the curve (the table has that of the end); the error of a smoothed curve is an upper bound."] : [];
    $("notes").replaceChildren(...[...bare, ...study().notes, ...study().strategies.flatMap((s) => s.notes.map((n) => `${s.label}: ${n}`))].map((n) => element("li", {}, n)));
    drawChips();
    drawResults();
    drawOrigin();
  }
  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(dark));
    Chart.defaults.color = style("--text");
    drawAll();
  }

  function begin() {
    const strategies = new Set(everyStrategy().map(([, s]) => s.label)), ended = new Set(everyStrategy().filter(([, s]) => !s.unfinished).map(([, s]) => s.label));
    const unfinished = strategies.size - ended.size, runsCut = data.cut ? ` (${data.cut} cut short)` : "";
    $("overview").textContent = `${plural(data.studies.length, "setting")}, ${plural(ended.size, "strategy", "strategies")}${unfinished ? ` and ${unfinished} unfinished` : ""}, ${plural(data.runs, "run")}${runsCut}.`;
    $("made-by").textContent = `Made by procurl ${data.procurl} from stored results. Nothing on this page is fetched or sent. Charts: Chart.js ${Chart.version}, MIT licence.`;
    const cut = everyStrategy().some(([, s]) => s.ret && s.ret.length < s.seeds.length) ? `single curves of at most ${plural(data.limits.seeds, "seed")}, ` : "";
    $("downloads-lead").textContent = `What this page holds, of all settings: rounded numbers (contexts to 1/${data.limits.grid} of the space), at most ${data.limits.evaluations} evaluations of a curve, ${cut}at most ${data.limits.points} tasks per strategy and moment. Statistics are of all seeds. The run folders have everything.`;
    if (data.problems.length) {
      $("problems").hidden = false;
      $("problems").querySelector("summary").textContent = `${plural(data.problems.length, "thing")} left out or missing`;
      $("problems").querySelector("ul").append(...data.problems.map((p) => element("li", {}, p)));
    }
    options($("setting"), data.studies.map((t, k) => [k, t.title]), 0);
    options($("window"), data.windows.map((w, k) => [k, w === 1 ? "none" : `over ${w} evaluations`]), 0);
    state.frame = 0;
    lazy("curve-table", curveTable);
    lazy("profile-table", profileTable);
    lazy("taught-table", taughtTable);
    lazy("learnt-table", learntTable);
    const on = (id, event, act) => $(id).addEventListener(event, act);
    on("setting", "change", (e) => { state.study = Number(e.target.value); state.frame = 0; drawAll(); });
    on("all", "click", () => { state.off.clear(); drawChips(); drawResults(); });
    on("none", "click", () => { study().strategies.forEach((s) => state.off.add(s.label)); drawChips(); drawResults(); });
    on("band", "change", (e) => { state.band = e.target.value; drawCurves(); });
    on("window", "change", (e) => { state.window = Number(e.target.value); drawCurves(); });
    on("curve-chart", "keydown", readOut);
    on("reference", "change", (e) => { state.reference = e.target.value; drawStatistics(); });
    for (const [id, key, other] of [["dim-x", "x", "y"], ["dim-y", "y", "x"]]) {
      on(id, "change", (e) => {
        const before = state[key];
        state[key] = Number(e.target.value);
        if (state.x === state.y) state[other] = before; // they change places
        $("dim-x").value = state.x;
        $("dim-y").value = state.y;
        drawTaught();
        drawLearnt();
      });
    }
    on("dim-distance", "change", (e) => { state.d = Number(e.target.value); drawDistance(); });
    on("frame", "input", (e) => { stop(); moveTo(Number(e.target.value)); });
    on("play", "click", play);
    on("metric", "change", (e) => { state.metric = e.target.value; drawLearnt(); });
    on("view", "change", (e) => { state.close = e.target.value === "close"; drawLearnt(); });
    on("theme", "click", () => setTheme(!isDark()));
    for (const [id, act] of Object.entries(downloads)) on(id, "click", act);
    const preference = matchMedia("(prefers-color-scheme: dark)");
    preference.addEventListener("change", (e) => setTheme(e.matches));
    setTheme(preference.matches);
  }
  begin();
})();
