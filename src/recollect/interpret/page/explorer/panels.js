/* Panels below: the whole episode, the policy, past frames, slots, two episodes. */
const matrix = { canvas: make("canvas"), key: "", bin: 1, band: 8 };
/** All steps by all steps (or lags) as one picture, largest number of every pixel; drawn once per head. */
function drawMatrixPicture(ep) {
  const key = [ep.number, now.h, now.lag, now.map].join();
  if (key === matrix.key) return;
  matrix.key = key;
  const bin = matrix.bin = ceil(ep.T / 700), n = ceil(ep.T / bin), table = colours(now.map);
  const cells = new Floats(n * n).fill(NaN);
  for (let t = 0; t < ep.T; t++) {
    const past = matrixRow(ep, t), base = floor(t / bin) * n;
    if (!past) continue;
    for (let s = 0; s <= t; s++) if (real(past[s])) {
      const cell = base + floor((now.lag ? t - s : s) / bin);
      if (!(cells[cell] >= past[s])) cells[cell] = past[s];
    }
  }
  const high = matrix.high = ep.all.temporal.high || 1;
  heat(matrix.canvas, cells, n, n, (v) => clamp(v / high, 0, 1), table, () => 1);
}
/** Row of the matrix without filling the cache of maps. */
function matrixRow(ep, t) {
  if (ep.all.temporal && !ep.all.temporal_step && now.h >= 0) return ep.all.temporal.at(t, now.h);
  return ep.past(t, now.h);
}
function matrixSide() { return clamp(roomOf("matrix") - 26, 180, 420); }
function drawMatrix(ep) {
  $("matrix").hidden = !ep.all.temporal || !now.matrix;
  $("matrix-button").setAttribute("aria-pressed", now.matrix);
  $("lag").setAttribute("aria-pressed", now.lag);
  if ($("matrix").hidden) return;
  drawMatrixPicture(ep);
  const side = matrixSide(), left = 34, band = matrix.band, g = fit($("matrix-picture"), side, side - 26);
  const inner = side - left - 4 - band, at = (t) => left + band + (t + .5) / ep.T * inner, down = (t) => band + 4 + (t + .5) / ep.T * inner;
  box(g, ink.grid, left + band, band + 4, inner, inner);
  g.imageSmoothingEnabled = matrix.canvas.width > inner;
  g.drawImage(matrix.canvas, left + band, band + 4, inner, inner);
  for (const event of ep.events) if (event.block) {
    const from = (event.t) / ep.T * inner, long = max((event.t1 - event.t) / ep.T * inner - .5, 1);
    box(g, eventColour(ep, event), left, band + 4 + from, band - 2, long);
    if (!now.lag) g.fillRect(left + band + from, 2, long, band - 2);
  }
  g.strokeStyle = ink.accent; g.lineWidth = 1;
  g.strokeRect(left + band - .5, down(now.t) - max(1.5, inner / ep.T / 2), inner + 1, max(3, inner / ep.T));
  const top = recalledNow(ep)[0];
  if (top) {
    const where = (top.a + top.b - 1) / 2;
    g.beginPath(); g.arc(at(now.lag ? now.t - where : where), down(now.t), 5, 0, 7); g.stroke();
  }
  for (const t of [0, floor(ep.T / 2), ep.T - 1]) write(g, String(t), left - 4, down(t) + 4, ink.soft, "right");
  put("matrix-text", `${headName(ep)}; down: now, across: ${now.lag ? "steps ago" : "the step attended to"}; ` +
    `dark 0, bright ${short(matrix.high)}; grey: out of reach; ring: the most recalled memory` + (matrix.bin > 1 ? `; each pixel is the largest of ${matrix.bin} × ${matrix.bin}` : "") +
    (ep.all.temporal_step ? "; only the largest entries were kept" : ""));
}
function matrixAt(event) {
  const at = pointerAt(event, $("matrix-picture")), { T } = here(), inner = matrixSide() - 38 - matrix.band;
  const x = floor((at.x - 34 - matrix.band) / inner * T), t = floor((at.y - matrix.band - 4) / inner * T);
  return t < 0 || t >= T || x < 0 || x >= T ? null : { t, past: now.lag ? t - x : x };
}
function hoverMatrix(event) {
  const at = matrixAt(event);
  if (!at || at.past < 0 || at.past > at.t) { put("matrix-hover", ""); return; }
  const row = matrixRow(here(), at.t), v = row ? row[at.past] : NaN;
  put("matrix-hover", `now ${at.t}, past ${at.past} (${at.t - at.past} ago): ${real(v) ? percent(v) : "not in reach, or not kept"}`);
}

function withoutItem(ep) {
  if (ep.removal.unit !== "chunk") {
    const [unit, kl] = ep.largestEffect(now.t);
    return { unit, kl, dv: ep.all.mem_dv.at(now.t)[unit], name: ep.removal.unit === "all" ? "its whole memory" : unitName(ep, unit) };
  }
  const items = recalledNow(ep);
  if (now.without === "used") return items.filter((item) => real(item.kl)).sort((a, b) => b.kl - a.kl)[0];
  return items[+now.without];
}
function drawPolicy(ep) {
  const effects = ep.removal;
  $("policy").hidden = !ep.discrete;
  if (!ep.discrete) return;
  $("without").parentNode.hidden = effects?.unit !== "chunk";
  const policy = ep.policy(now.t), item = effects ? withoutItem(ep) : null, places = ep.all.mem_kl?.shape[1];
  let other = item ? ep.all.mem_logits.part((now.t * places + item.unit) * policy.length, policy.length) : null;
  if (other && !other.every(Number.isFinite)) other = null;
  const changed = other ? softmax(other) : null;
  drawPolicyBars(ep, policy, changed);
  $("policy-keys").hidden = !changed;
  const name = (i) => ep.actions[i] ?? `action ${i}`, best = policy.indexOf(most(policy));
  let text = `Now: ${name(best)} ${percent(policy[best])}.`;
  if (!effects) text += " The effect of removing a memory was not measured.";
  else if (!item || !real(item.kl)) text += " There is no such memory to remove at this step.";
  else {
    const then = changed ? changed.indexOf(most(changed)) : -1;
    text += ` Without ${item.name ?? `${steps(item.a, item.b)}`}: ` + (changed ? `${name(then)} ${percent(changed[then])}` : "the policy was not kept") +
      `; KL ${nats(item.kl)}, value ${item.dv >= 0 ? "+" : "−"}${short(abs(item.dv))}.` +
      (!changed ? "" : then === best ? " It would act the same." : sum(policy.map((share, i) => abs(share - changed[i]))) / 2 < ep.unmoved
        ? " Its first choice changes, but both are about equally likely: the policy is the same." : " It would act differently.");
  }
  put("policy-text", text);
}
function drawPolicyBars(ep, policy, changed) {
  const width = clamp(roomOf("policy") - 26, 200, 620), shown = range(policy.length).slice(0, 24);
  const row = changed ? 24 : 18, g = fit($("policy-picture"), width, shown.length * row + 4), left = 92, room = width - left - 76;
  for (const i of shown) {
    const y = i * row + 2;
    write(g, (ep.actions[i] ?? `action ${i}`).slice(0, 14), left - 8, y + 13, ink.ink, "right", 12);
    box(g, ink.neutral, left, y + 2, max(room * policy[i], 1), changed ? 9 : 13);
    if (changed) { box(g, ink.effect, left, y + 12, max(room * changed[i], 1), 9); }
    write(g, changed ? `${round(100 * policy[i])} → ${round(100 * changed[i])} %` : percent(policy[i]), width, y + 14, ink.soft, "right");
  }
}
/** Attention to past frames, where the memory keeps places; else plain frames, and a sentence that says so. */
function drawPast(ep) {
  const places = ep.all.past_step;
  $("past").hidden = !ep.H || !ep.frames || !(places || ep.all.temporal);
  if ($("past").hidden) return;
  const shown = places ? pastByPlace(ep) : recalledNow(ep).slice(0, 6).map((item) => ({ s: middle(item), mass: item.mass }));
  put("past-text", places ? pastTail(ep) : "This memory keeps no pixels: the frames that it recalls are shown plain.");
  const box = $("past-frames"), scale = 120 / max(ep.frames.width, ep.frames.height);
  const [width, height] = [round(ep.frames.width * scale), round(ep.frames.height * scale)];
  while (box.children.length < shown.length) box.append(make("figure", {}, make("canvas"), make("figcaption")));
  [...box.children].forEach((figure, i) => {
    const item = shown[i];
    figure.hidden = !item;
    if (!item) return;
    const g = fit(figure.firstChild, width, height);
    ep.draw(g, item.s, 0, 0, width, height);
    if (item.map) paintPlaces(g, ep, item, width, height);
    figure.lastChild.textContent = `step ${item.s}, ${percent(item.mass)}`;
  });
}
function pastByPlace(ep) {
  if (now.h < 0) return [];
  const step = ep.all.past_step.at(now.t, now.h), cell = ep.all.past_cell.at(now.t, now.h), weight = ep.map("past_weight", now.t, now.h);
  if (!step) return [];
  const bySteps = new Map();
  step.forEach((s, i) => {
    if (s === 65535 || !(weight[i] > 0)) return;
    if (!bySteps.has(s)) bySteps.set(s, { s, mass: 0, map: new Floats(ep.places[0] * ep.places[1]) });
    bySteps.get(s).map[cell[i]] += weight[i]; bySteps.get(s).mass += weight[i];
  });
  return [...bySteps.values()].sort((a, b) => b.mass - a.mass).slice(0, 6);
}
function pastTail(ep) {
  if (now.h < 0) return "Choose one head to see its places.";
  return `${percent(ep.outside("past_tail", now.t, now.h))} of the mass is outside the stored places.`;
}
function paintPlaces(g, ep, item, width, height) {
  const [rows, columns] = ep.places;
  g.drawImage(darkFrame(ep, item.s), 0, 0, width, height);
  paint(g, { map: item.map, rows, columns, high: ep.all.past_weight.high, colours: now.map }, width, height, now.opacity);
  outline(g, item.map.map((x) => x > 0), rows, columns, width, height);
}
const slotPicture = { canvas: make("canvas"), key: "" };
/** Weights of every slot, mean over queries, by step. */
function drawSlots(ep) {
  $("slots").hidden = !ep.slots.length;
  if (!ep.slots.length) return;
  const number = +$("slots-source").value || 0, numbers = ep.all[`slots${number}`], [, queries, slots] = numbers.shape;
  const key = [ep.number, number, now.map].join();
  if (key !== slotPicture.key) {
    slotPicture.key = key;
    const cells = new Floats(slots * ep.T).fill(NaN);
    for (let t = 0; t < ep.T; t++) {
      const row = numbers.row(t);
      if (row < 0) continue;
      const mean = meanMap(range(queries).map((q) => numbers.part((row * queries + q) * slots, slots)));
      mean.forEach((v, s) => { cells[s * ep.T + t] = v; });
    }
    heat(slotPicture.canvas, cells, ep.T, slots, (v) => clamp(v / numbers.high, 0, 1), colours(now.map), () => 1);
  }
  const width = max(200, roomOf("slots") - 26), height = clamp(slots * 10, 40, 220), g = fit($("slots-picture"), width, height);
  g.imageSmoothingEnabled = false;
  g.drawImage(slotPicture.canvas, 0, 0, width, height);
  cursor(g, ep, now.t, width, height);
  const { name, kind, axes } = ep.slots[number];
  put("slots-text", `${kind} weights of ${name}, ${axes || "queries x slots"}: mean over the first, down: the second, ` +
    `across: steps; dark 0, bright ${short(numbers.high)}`);
}

/** The corresponding step of another episode: the same step, or the same share of the same event. */
function aligned(from, to, t) {
  if (from === to) return t;
  if (now.align === "step") return clamp(t, 0, to.T - 1);
  const knots = from.number ? pairing.map(([a, b]) => [b, a]) : pairing;
  const i = max(1, knots.findIndex(([a]) => a > t)), [a, b] = [knots[i - 1], knots[i]];
  return clamp(round(a[1] + (b[0] > a[0] ? (t - a[0]) / (b[0] - a[0]) : 0) * (b[1] - a[1])), 0, to.T - 1);
}
/** The compared head of another episode: the same one if it exists, else its best. */
const headOf = (ep) => ep === here() ? now.h : now.h < ep.H && ep.H === here().H ? now.h : ep.opening.head;
const pairRows = [];
function makeCompare() {
  $("compare").hidden = episodes.length < 2;
  if (episodes.length < 2) return;
  for (const ep of episodes) {
    const row = { frame: make("canvas"), track: make("canvas"), text: make("p", { class: "fact" }) };
    $("compare-rows").append(make("div", { class: "pair" }, row.text, row.frame, row.track));
    on(row.track, "click", (event) => {
      const { x, width } = pointerAt(event, row.track);
      go(aligned(ep, here(), clamp(floor(x / width * ep.T), 0, ep.T - 1)));
    });
    pairRows.push(row);
  }
}
function drawCompare() {
  if (episodes.length < 2) return;
  episodes.forEach((ep, i) => {
    const t = aligned(here(), ep, now.t), h = headOf(ep), row = pairRows[i];
    row.text.textContent = `${"AB"[i]}, ${ep.name}. ${sentence(ep, t, h)}`;
    if (ep.frames) {
      const height = round(132 * ep.frames.height / ep.frames.width);
      drawFrame(fit(row.frame, 132, height), ep, t, h, 132, height, now.ov, false);
    }
    const width = max(160, min(roomOf("compare") - 172, 1300)), g = fit(row.track, width, 84);
    eventBlocks(g, ep, (at) => at / ep.T * width, 0, 16);
    const past = ep.H ? ep.past(t, h) : null, top = past ? most(past) : 0;
    if (top > 0) bars(g, past, 0, width, 56, 36, ep.T, top, ink.mass);
    const effects = ep.effects(t), size = { left: 0, span: width };
    if (effects) drawUsed(g, ep, size, t, { top: 60, height: 20, base: 82 });
    cursor(g, ep, t, width, 84);
  });
}
