/* The timeline of the episode. */
const fixed = make("canvas");
let fixedKey = "";
/** Rows of the timeline that this episode has: [name, top, height]. */
function trackRows(ep) {
  const wanted = [["events", 22, ep.events.some((event) => event.block)], ["recall", 66, ep.all.temporal],
    ["used (KL)", 24, ep.removal], ["value", 30, true], ["entropy", 24, ep.entropy], ["reward", 18, true], ["action", 12, true]];
  let top = 2;
  const rows = {};
  for (const [name, height, there] of wanted) if (there) { rows[name] = { top, height, base: top + height }; top += height + 7; }
  rows.axis = { top, height: 18 };
  return { rows, height: top + 20 };
}
const GUTTER = 88;
function trackSize(ep) {
  const width = max(200, roomOf("timeline"));
  return { width, left: GUTTER, span: width - GUTTER - 12, ...trackRows(ep) };
}
const xOf = (size, ep, t) => size.left + (t + .5) / ep.T * size.span;
/** The parts that do not change from step to step. */
function drawFixed(ep, size) {
  const key = [ep.number, size.width, window.devicePixelRatio, ink.paper, ink.ink].join();
  if (key === fixedKey) return;
  fixedKey = key;
  const g = fit(fixed, size.width, size.height), { rows } = size, wide = size.span / ep.T;
  for (const [name, row] of Object.entries(rows)) if (name !== "axis")
    nameRow(g, name, unitOf(ep, name), size.left - 8, name === "recall" ? row.base - 34 : row.top + row.height / 2);
  if (rows.events) eventBlocks(g, ep, (t) => xOf(size, ep, t) - wide / 2, rows.events.top, 18);
  for (const mark of ep.marks) {
    const x = xOf(size, ep, mark.t), y = rows.axis.top - 3;
    g.fillStyle = ink.accent; g.beginPath(); g.moveTo(x, y); g.lineTo(x - 3, y + 5); g.lineTo(x + 3, y + 5); g.fill();
  }
  line(g, ep, size, rows.value, ep.value, ink.value);
  if (ep.removal && ep.removal.unit !== "chunk") line(g, ep, size, rows["used (KL)"], Floats.from(range(ep.T), (t) => ep.largestEffect(t)[1]), ink.effect, 0, ep.effectScale);
  if (rows.entropy) line(g, ep, size, rows.entropy, ep.entropy, ink.entropy);
  drawReward(g, ep, size, rows.reward, wide);
  drawActions(g, ep, size, rows.action, wide);
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000].find((n) => ep.T / n <= (size.width - size.left) / 62) ?? 5000;
  for (let t = 0; t < ep.T; t += every) write(g, String(t), xOf(size, ep, t), rows.axis.top + 16, ink.soft, "center");
  write(g, "step", size.left - 8, rows.axis.top + 16, ink.soft, "right");
}
/** Unit of a row, or the largest value that it can show. */
const unitOf = (ep, name) => ({ "used (KL)": `to ${short(ep.effectScale)} nats`, entropy: "nats", recall: "share",
  value: `${short(-most(ep.value.map((v) => -v)))} to ${short(most(ep.value))}` })[name];
function nameRow(g, name, unit, x, y) {
  write(g, name, x, unit ? y - 1 : y + 4, ink.soft, "right");
  if (unit) write(g, unit, x, y + 11, ink.soft, "right");
}
/** What the colours of the actions and the marks mean. */
function showTrackKeys({ actionKeys, trackNotes }) {
  const keys = actionKeys.map(([i, text]) => {
    const swatch = make("i");
    swatch.style.background = ACTIONS[i % ACTIONS.length];
    return make("span", { class: "key" }, swatch, text);
  });
  $("track-keys").replaceChildren(...keys, ...trackNotes.map((text) => make("span", { class: "key", text })));
}
/** Blocks of the events; x(t) is where step t begins. A name stands in its block, after or before it, where there is room. */
function eventBlocks(g, ep, x, y, height) {
  const all = ep.events.filter((e) => e.block);
  let taken = x(0);
  all.forEach((event, i) => {
    const left = x(event.t), end = max(x(event.t1) - 1, left + 2), name = eventName(event);
    const room = 6.5 * name.length + 8, say = (at, ...how) => write(g, name, at, y + height - 5, ...how);
    box(g, eventColour(ep, event), left, y, end - left, height);
    if (room <= end - left) say(left + 4, "#fff");
    else if (end + room <= x(all[i + 1]?.t ?? ep.T)) say(end + 4);
    else if (taken + room <= left) say(left - 4, ink.soft, "right");
    taken = end + room;
  });
}
/** From the lowest to the highest of the values, and of the ends that are given. */
function line(g, ep, size, row, values, colour, ...ends) {
  const real = [...ends, ...values].filter(Number.isFinite).slice(0, 60000), low = min(...real), high = max(...real);
  const y = (v) => row.base - 2 - (high > low ? (v - low) / (high - low) : .5) * (row.height - 4);
  box(g, ink.grid, size.left, row.base, size.span, 1);
  g.strokeStyle = colour; g.lineWidth = 1.4; g.beginPath();
  let drawing = false;
  values.forEach((v, t) => {
    if (!Number.isFinite(v)) { drawing = false; return; }
    g[drawing ? "lineTo" : "moveTo"](xOf(size, ep, t), y(v)); drawing = true;
  });
  g.stroke();
  if (ep.T === 1 && real.length) { box(g, colour, xOf(size, ep, 0) - 2, y(values[0]) - 2, 4, 4); }
}
function drawReward(g, ep, size, row, wide) {
  const top = most(ep.reward.map(abs)) || 1, zero = row.top + row.height / 2;
  box(g, ink.grid, size.left, zero, size.span, 1);
  ep.reward.forEach((r, t) => {
    if (!r || !real(r)) return;
    box(g, r > 0 ? ink.value : ink.mass, xOf(size, ep, t) - max(wide, 2) / 2, zero, max(wide, 2), -r / top * row.height / 2);
  });
}
function drawActions(g, ep, size, row, wide) {
  if (!ep.discrete) { line(g, ep, size, row, ep.curve("action").filter((_, i) => i % ep.all.action.rowSize === 0), ink.soft); return; }
  for (let t = 0; t < ep.T; t++) {
    box(g, ACTIONS[ep.all.action.raw[t * ep.all.action.rowSize] % ACTIONS.length], xOf(size, ep, t) - wide / 2, row.top, max(wide - (wide > 3 ? .6 : 0), .5), row.height);
  }
}
function drawTrack(ep) {
  const size = trackSize(ep), g = fit($("track"), size.width, size.height), { rows } = size;
  drawFixed(ep, size);
  if (rows.recall) drawRecall(g, ep, size, now.t, rows.recall, rows["used (KL)"]);
  g.drawImage(fixed, 0, 0, size.width, size.height);
  const x = xOf(size, ep, now.t);
  box(g, ink.cursor, x - .75, 0, 1.5, rows.axis.top);
  const right = x > size.width - 90, side = right ? -5 : 5, align = right ? "right" : "left";
  label(g, short(ep.value[now.t]), x + side, rows.value.top + 11, align);
  if (rows.entropy) label(g, short(ep.entropy[now.t]), x + side, rows.entropy.top + 11, align);
  if (ep.reward[now.t]) label(g, `${ep.reward[now.t] > 0 ? "+" : ""}${short(ep.reward[now.t])}`, x + side, rows.reward.top + 11, align);
}
function label(g, text, x, y, align) {
  g.lineWidth = 6; g.strokeStyle = ink.card; g.lineJoin = "round";
  write(g, text, x, y, ink.ink, align, 11, true);
}
/** Bars of attention at step t, arcs from now to the memories it is on, and the effects of removing each. */
function drawRecall(g, ep, size, t, row, used) {
  const span = size.span, past = ep.past(t, now.h), items = recalled(ep, t, now.h);
  const base = row.base, tall = min(40, row.height * .4);
  box(g, ink.grid, size.left, base, span, 1);
  const top = past ? most(past) : 0;
  if (top > 0) {
    bars(g, past, size.left, span, base, tall, ep.T, top, ink.mass);
    write(g, `highest ${percent(top)}`, size.left, row.top + 10, ink.soft);
  }
  arcs(g, ep, size, t, items, base - tall - 2, row.top + 6, base);
  if (used) drawUsed(g, ep, size, t, used);
}
function arcs(g, ep, size, t, items, low, top, base) {
  const from = xOf(size, ep, t);
  for (const item of items.slice(0, 5).reverse()) {
    const x = xOf(size, ep, (item.a + item.b - 1) / 2), far = abs(from - x) / (size.width - size.left);
    if (item.mass < .01 || item.b > t) continue;
    const peak = low - (low - top) * (1.33 * min(1, .25 + far));
    g.globalAlpha = clamp(.2 + item.mass * 1.4, .2, .95);
    g.strokeStyle = ink.mass; g.lineWidth = clamp(item.mass * 7, .8, 4); g.beginPath();
    g.moveTo(from, base); g.bezierCurveTo(from, peak, x, peak, x, low + 1); g.stroke();
    g.globalAlpha = 1;
  }
}
function drawUsed(g, ep, size, t, row) {
  const effects = ep.effects(t), span = size.span;
  box(g, ink.grid, size.left, row.base, span, 1);
  if (!effects) return;
  effects.forEach((kl, unit) => {
    if (!(kl > 0)) return;
    const [a, b] = ep.units[unit], h = kl / ep.effectScale * row.height;
    box(g, ink.effect, xOf(size, ep, a) - span / ep.T / 2, row.base - h, max((b - a) * span / ep.T - 1, 1), h);
  });
}
function stepAt(event) {
  const size = trackSize(here()), { x } = pointerAt(event, $("track"));
  return clamp(floor((x - size.left) / size.span * here().T), 0, here().T - 1);
}
