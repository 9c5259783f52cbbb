"use strict";
// The map of a report: pan, zoom, hover, search, select. It shows strings by textContent only.
(() => {
const at = (name) => document.getElementById(`explore-${name}`);
const data = JSON.parse(document.getElementById("points").textContent);
const UNKNOWN = 255, HOVER = 14, MOST_LISTED = 400, PAGE = 60;
const { n, n_known: nKnown, names, sizes, colors: hexes, points } = data, { x: xs, y: ys, label: labels } = points;
const lowTexts = data.texts.map((text) => text.toLowerCase());
const canvas = at("canvas"), context = canvas.getContext("2d", { alpha: false }), tip = at("tip");
const number = (value) => value.toLocaleString("en");
const percent = (byte) => `${Math.round((100 * byte) / 254)} %`;

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// where on the map the name of every cluster is written
const bySize = sizes.map((_, cluster) => cluster).sort((a, b) => sizes[b] - sizes[a]);
const titleOf = (cluster) => (names[cluster] ? `${cluster} · ${names[cluster]}` : `Cluster ${cluster}`);
const members = sizes.map(() => []);
for (let i = 0; i < n; i++) members[labels[i]].push(i);
const places = members.map((inside) => {
  if (!inside.length) return null;
  const middle = (values) => {
    const sorted = Float64Array.from(inside, (i) => values[i]).sort();
    const pick = (fraction) => sorted[Math.floor(fraction * (sorted.length - 1))];
    return [pick(0.5), pick(0.03), pick(0.97)];
  };
  const [mx, left, right] = middle(xs), [my, top, bottom] = middle(ys);
  // the point nearest to the median: the median itself may lie in another cluster
  let best = inside[0], least = Infinity;
  for (const i of inside) {
    const far = Math.abs(xs[i] - mx) + Math.abs(ys[i] - my);
    if (far < least) { least = far; best = i; }
  }
  return { x: xs[best], y: ys[best], left, right, top, bottom };
});

const extent = (values) => {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
};
const [x0, x1] = extent(xs), [y0, y1] = extent(ys);
const view = { zoom: 1, x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
const state = { query: "", picked: null, hover: -1, active: null }; // picked: a cluster
let pixels, image, ratio = 1, colors, moving = 0, budget = n, scheduled = false;

const fit = () => Math.min((canvas.width - 48 * ratio) / (x1 - x0 + 1), (canvas.height - 48 * ratio) / (y1 - y0 + 1));
const scale = () => fit() * view.zoom;
const screenX = (x) => (x - view.x) * scale() + canvas.width / 2;
const screenY = (y) => canvas.height / 2 - (y - view.y) * scale();

const rgb = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const [paper, ink] = ["--paper", "--ink"].map((name) => style.getPropertyValue(name).trim());
  const base = rgb(paper), dim = ([r, g, b]) => [r, g, b].map((v, i) => Math.round(0.14 * v + 0.86 * (0.88 * base[i] + 15)));
  colors = { paper, ink, ground: pack(base) };
  colors.bright = Uint32Array.from(hexes, (color) => pack(rgb(color)));
  colors.dim = Uint32Array.from(hexes, (color) => pack(dim(rgb(color))));
}

// drawing pixels is four times as fast as drawing circles; a disc is offsets, and what part of 256 each covers
function stampOf(radius) {
  const stamp = [], reach = Math.ceil(radius);
  for (let dy = -reach; dy <= reach; dy++)
    for (let dx = -reach; dx <= reach; dx++) {
      const covered = Math.min(1, radius + 0.5 - Math.hypot(dx, dy));
      if (covered > 0.1) stamp.push(dy * canvas.width + dx, Math.round(256 * covered));
    }
  return { stamp: Int32Array.from(stamp), reach };
}

function drawPoints(limit) {
  const { width, height } = canvas, s = scale();
  const area = Math.sqrt((0.3 * width * height) / n / Math.PI);
  const radius = Math.min(9 * ratio, Math.min(4.5 * ratio, Math.max(0.9 * ratio, area)) * view.zoom ** 0.4);
  const { stamp, reach } = stampOf(radius), { active } = state;
  const left = width / 2 - view.x * s, top = height / 2 + view.y * s;
  pixels.fill(colors.ground);
  for (let pass = active ? 0 : 1; pass < 2; pass++) {
    const table = pass ? colors.bright : colors.dim;
    for (let i = limit - 1; i >= 0; i--) {
      if (active && active[i] !== pass) continue;
      const px = (left + xs[i] * s + 0.5) | 0, py = (top - ys[i] * s + 0.5) | 0;
      if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
      const color = table[labels[i]], center = py * width + px;
      for (let j = 0; j < stamp.length; j += 2) {
        const where = center + stamp[j], a = stamp[j + 1];
        if (a === 256) { pixels[where] = color; continue; }
        const old = pixels[where], b = 256 - a; // red and blue are mixed together
        pixels[where] = 0xff000000 | ((((color & 0xff00ff) * a + (old & 0xff00ff) * b) >>> 8) & 0xff00ff)
          | ((((color & 0xff00) * a + (old & 0xff00) * b) >>> 8) & 0xff00);
      }
    }
  }
  context.putImageData(image, 0, 0);
}

// names, the largest clusters first, where they cover no other; near an edge they move inwards
function drawNames() {
  const { picked } = state, taken = [], gap = 24 * ratio;
  Object.assign(context, { font: `600 ${11.5 * ratio}px system-ui, sans-serif`, textAlign: "center", textBaseline: "middle" });
  Object.assign(context, { lineJoin: "round", lineWidth: 3.5 * ratio, strokeStyle: colors.paper, fillStyle: colors.ink });
  for (const cluster of picked === null ? bySize : [picked, ...bySize]) {
    const place = places[cluster];
    if (!place) continue;
    const wanted = screenX(place.x), y = screenY(place.y);
    if (wanted < 0 || y < gap / 2 || wanted > canvas.width || y > canvas.height - gap / 2) continue;
    const full = names[cluster] || String(cluster), name = full.length > 30 ? `${full.slice(0, 29)}…` : full;
    const half = context.measureText(name).width / 2 + 4 * ratio, x = Math.max(half, Math.min(canvas.width - half, wanted));
    if (taken.some((one) => Math.abs(one.x - x) < one.half + half && Math.abs(one.y - y) < gap)) continue;
    taken.push({ x, y, half });
    context.strokeText(name, x, y);
    context.fillText(name, x, y);
    if (taken.length >= 100) break;
  }
  if (!moving) canvas.dataset.names = taken.length;
}

function drawMark(i) {
  context.lineWidth = 2 * ratio;
  for (const [radius, color] of [[7, colors.ink], [9, colors.paper]]) {
    context.strokeStyle = color;
    context.beginPath();
    context.arc(screenX(xs[i]), screenY(ys[i]), radius * ratio, 0, 7);
    context.stroke();
  }
}

function draw() {
  scheduled = false;
  if (!pixels) return;
  const began = performance.now();
  const limit = moving ? Math.min(n, budget) : n;
  drawPoints(limit);
  canvas.dataset.points = limit;
  drawNames();
  if (state.hover >= 0) drawMark(state.hover);
  // fewer points while moving, where the machine is slow; they are in random order
  if (moving) budget = performance.now() - began > 24 ? Math.max(10000, 0.8 * budget | 0) : Math.min(n, 1.1 * budget | 0);
}
function schedule() {
  if (!scheduled) { scheduled = true; requestAnimationFrame(draw); }
}
function moved() {
  clearTimeout(moving);
  moving = setTimeout(() => { moving = 0; schedule(); }, 160);
  const shown = `${view.zoom < 10 ? view.zoom.toFixed(1) : Math.round(view.zoom)}×`;
  if (at("zoom").textContent !== shown) at("zoom").textContent = shown;
  schedule();
}

function zoomBy(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const next = Math.max(0.5, Math.min(400, view.zoom * factor)), s = scale(), t = fit() * next;
  view.x += (x - canvas.width / 2) * (1 / s - 1 / t);
  view.y -= (y - canvas.height / 2) * (1 / s - 1 / t);
  view.zoom = next;
  moved();
}
function panBy(dx, dy) { view.x -= dx / scale(); view.y += dy / scale(); moved(); }
function show({ left, right, top, bottom }) {
  Object.assign(view, { x: (left + right) / 2, y: (top + bottom) / 2, zoom: 1 });
  const wanted = Math.min(canvas.width / (right - left + 1), canvas.height / (bottom - top + 1)) * 0.7;
  zoomBy(Math.max(1, wanted / fit()));
}
const showAll = () => show({ left: x0, right: x1, top: y0, bottom: y1 });

// the nearest point; one with a text or an image is preferred
function nearest(px, py, reach) {
  const s = scale(), x = view.x + (px - canvas.width / 2) / s, y = view.y - (py - canvas.height / 2) / s, r = (reach * ratio) / s;
  let best = -1, least = r;
  for (let i = 0; i < n; i++) {
    if (state.active && !state.active[i]) continue;
    const far = Math.hypot(xs[i] - x, ys[i] - y) + (i < nKnown ? 0 : 0.5 * r);
    if (far < least) { least = far; best = i; }
  }
  return best;
}

function contentOf(i, into) {
  if (i < data.images.length) {
    const picture = make("img");
    picture.src = data.images[i];
    picture.alt = data.texts[i] || `row ${points.row[i]}`;
    into.append(picture);
  }
  if (i < data.texts.length && !(into !== tip && data.images.length)) into.append(make("span", "text", data.texts[i]));
  if (i >= nKnown) into.append(make("span", "text", `row ${number(points.row[i])}`));
}
function reasonsOf(i) {
  const cluster = labels[i], reasons = [];
  const named = (one) => titleOf(one).replace("Cluster ", "");
  reasons.push(["row", number(points.row[i])], ["cluster", named(cluster)]);
  reasons.push(["confidence", (points.confidence[i] / 254).toFixed(2)]);
  if (points.inside && points.inside[i] !== UNKNOWN) reasons.push(["neighbours in it", percent(points.inside[i])]);
  if (points.second[i]) reasons.push(["next cluster", named(points.second[i] - 1)]);
  if (points.class) reasons.push(["class", data.classes[points.class[i]]]);
  return reasons;
}
function hover(i) {
  if (i !== state.hover) schedule();
  state.hover = i;
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.replaceChildren();
  contentOf(i, tip);
  const list = make("dl");
  for (const [name, value] of reasonsOf(i)) list.append(make("dt", "", name), make("dd", "", value));
  tip.append(list);
  const x = screenX(xs[i]) / ratio, y = screenY(ys[i]) / ratio, box = canvas.getBoundingClientRect();
  const low = y + 18 + tip.offsetHeight < box.height || y < box.height / 2;
  tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${low ? y + 18 : y - 18 - tip.offsetHeight}px`;
}

// the search and the selected cluster
function refresh() {
  const { query, picked } = state, matches = new Array(sizes.length).fill(0);
  let count = n;
  state.active = null;
  if (query || picked !== null) {
    const active = (state.active = new Uint8Array(n));
    const hits = names.map((name, cluster) => String(cluster) === query || (query && name.toLowerCase().includes(query)));
    const classes = data.classes.map((name) => query && name.toLowerCase().includes(query));
    count = 0;
    for (let i = 0; i < n; i++) {
      const found = !query || hits[labels[i]] || (i < lowTexts.length && lowTexts[i].includes(query))
        || (points.class && classes[points.class[i]]) || String(points.row[i]) === query;
      if (found) matches[labels[i]]++;
      if (found && (picked === null || labels[i] === picked)) { active[i] = 1; count++; }
    }
  }
  hover(-1);
  schedule();
  at("status").textContent = (picked === null ? "" : `${titleOf(picked)}: `)
    + (query ? `${number(count)} of ${number(n)} points match “${query}”` : `${number(count)} ${count === 1 ? "point" : "points"}`);
  at("back").hidden = at("closer").hidden = picked === null;
  at("title").textContent = picked === null ? `${number(sizes.length)} clusters` : titleOf(picked);
  if (picked === null) listClusters(matches); else listRows();
}

function listClusters(matches) {
  const { query } = state, list = at("list");
  list.className = "";
  const wanted = query ? bySize.filter((cluster) => matches[cluster]).sort((a, b) => matches[b] - matches[a]) : bySize;
  list.replaceChildren();
  for (const cluster of wanted.slice(0, MOST_LISTED)) {
    const item = make("li"), button = make("button", "entry"), dot = make("i", "dot");
    dot.style.background = hexes[cluster];
    button.append(dot, make("b", "", String(cluster)), make("span", "text", names[cluster]));
    button.append(make("small", "", query ? `${number(matches[cluster])} of ${number(sizes[cluster])}` : `${number(sizes[cluster])} rows`));
    button.addEventListener("click", () => pick(cluster, true));
    item.append(button);
    list.append(item);
  }
  at("more").hidden = wanted.length <= MOST_LISTED;
  at("more").textContent = `${number(wanted.length - MOST_LISTED)} more: search for a name or number`;
  at("more").disabled = true;
}

// typical rows first; those whose text or image is here before the others
function listRows(shown = PAGE) {
  const rows = [], list = at("list"), { typical, confidence } = points;
  for (let i = 0; i < n; i++) if (state.active[i]) rows.push(i);
  list.className = data.images.length ? "images" : "";
  rows.sort((a, b) => (a >= nKnown) - (b >= nKnown) || typical[a] - typical[b]);
  list.replaceChildren();
  for (const i of rows.slice(0, shown)) {
    const item = make("li"), button = make("button", "entry row");
    contentOf(i, button);
    button.append(make("small", "", (confidence[i] / 254).toFixed(2)));
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => hover(i));
    item.append(button);
    list.append(item);
  }
  at("more").hidden = rows.length <= shown;
  at("more").disabled = false;
  at("more").textContent = `Show more of ${number(rows.length)}`;
  at("more").onclick = () => listRows(shown + PAGE);
}

function pick(picked, fromList) {
  state.picked = picked;
  refresh();
  at("panel").scrollTop = 0;
  const place = picked === null ? null : places[picked];
  if (!fromList) return;
  at(picked === null ? "title" : "back").focus({ preventScroll: true });
  if (!place) return;
  const x = screenX(place.x), y = screenY(place.y);
  if (x < 0 || y < 0 || x > canvas.width || y > canvas.height) { Object.assign(view, { x: place.x, y: place.y }); moved(); }
}

// pointers: drag pans, two fingers or the wheel zoom, a click selects
const down = new Map();
let travelled = 0;
const inCanvas = (event) => {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
};
canvas.addEventListener("pointerdown", (event) => {
  if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
  if (!down.size) travelled = 0;
  down.set(event.pointerId, inCanvas(event));
});
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = inCanvas(event), before = down.get(event.pointerId);
  if (!before) { hover(nearest(x, y, HOVER)); return; }
  if (down.size === 1) {
    travelled += Math.hypot(x - before[0], y - before[1]);
    if (travelled > 4 * ratio) { hover(-1); panBy(x - before[0], y - before[1]); }
  } else {
    const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
    const apart = (where) => Math.max(1, Math.hypot(where[0] - other[0], where[1] - other[1]));
    travelled = Infinity;
    zoomBy(apart([x, y]) / apart(before), (x + other[0]) / 2, (y + other[1]) / 2);
  }
  down.set(event.pointerId, [x, y]);
});
canvas.addEventListener("pointerup", (event) => {
  if (down.delete(event.pointerId) && !down.size && travelled <= 4 * ratio) choose(nearest(...inCanvas(event), HOVER));
});
canvas.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
canvas.addEventListener("pointerleave", () => hover(-1));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomBy(Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) / 300), ...inCanvas(event));
}, { passive: false });
function choose(i) {
  pick(i < 0 ? null : labels[i]);
  hover(i);
}
const KEYS = {
  ArrowLeft: () => panBy(60 * ratio, 0), ArrowRight: () => panBy(-60 * ratio, 0),
  ArrowUp: () => panBy(0, 60 * ratio), ArrowDown: () => panBy(0, -60 * ratio),
  "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: showAll,
  Enter: () => state.hover >= 0 && choose(state.hover), Escape: () => pick(null),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
  // the point nearest to the middle is described, so that every point can be reached by keys
  if (event.key !== "Escape" && event.key !== "Enter") hover(nearest(canvas.width / 2, canvas.height / 2, Math.max(canvas.width, canvas.height) / ratio));
  if (state.hover >= 0) at("status").textContent = reasonsOf(state.hover).map((pair) => pair.join(" ")).join(", ");
});

at("query").addEventListener("input", () => { state.query = at("query").value.trim().toLowerCase(); refresh(); });
at("in").addEventListener("click", () => zoomBy(1.6));
at("out").addEventListener("click", () => zoomBy(1 / 1.6));
at("all").addEventListener("click", showAll);
at("back").addEventListener("click", () => pick(null, true));
at("closer").addEventListener("click", () => {
  const place = places[state.picked];
  if (place) show(place);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); schedule(); });
new ResizeObserver(() => {
  if (!canvas.clientWidth) return;
  ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  image = context.createImageData(canvas.width, canvas.height);
  pixels = new Uint32Array(image.data.buffer);
  schedule();
}).observe(canvas);

readColors();
refresh();
document.documentElement.classList.add("live");
})();
