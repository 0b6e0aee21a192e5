/* Heads and cards of recalled memories. */
const headButtons = new Map();
/** One button for every head and one for the mean, made when the episode changes. */
function makeHeads(ep) {
  headButtons.clear();
  $("heads").replaceChildren();
  const layersOf = [...new Set(ep.heads.map((head) => head.layer))];
  $("layers").hidden = layersOf.length < 2;
  $("layers").replaceChildren(...layersOf.map((layer) => radio(`layer ${layer + 1}`, () => setHead(ep.heads.findIndex((head) => head.layer === layer)))));
  layersOf.forEach((layer, i) => { $("layers").children[i].dataset.layer = layer; });
  const offered = ep.H > 1 ? [...range(ep.H), -1] : range(ep.H);
  for (const h of offered) {
    const canvas = make("canvas"), name = make("span"), label = make("span", { class: "soft" });
    const button = radio("", () => setHead(h), canvas, name, label);
    name.textContent = h < 0 ? "mean" : ep.H > 8 ? ep.heads[h].name.replace(/^layer \d+ /, "") : ep.heads[h].name;
    label.textContent = h < 0 ? `of ${ep.meanOf().length}` : ep.heads[h].label ?? "";
    $("heads").append(button);
    headButtons.set(h, { button, canvas });
  }
  if (!ep.H) $("heads").append(make("p", { class: "soft", text: ep.nothing }));
}
function drawHeads(ep) {
  const chosen = now.h < 0 ? null : ep.heads[now.h], spatial = Boolean(ep.all.spatial) && ep.frames;
  const shown = ep.H <= 8 ? null : chosen?.layer ?? ep.heads[0]?.layer;
  const small = !spatial ? (ep.H > 6 ? 96 : 132) : ep.H > 6 ? 84 : 104;
  for (const [h, { button, canvas }] of headButtons) {
    button.setAttribute("aria-checked", h === now.h);
    button.hidden = shown !== null && h >= 0 && ep.heads[h].layer !== shown;
    if (button.hidden) continue;
    if (spatial) {
      const width = small, height = round(small * ep.frames.height / ep.frames.width);
      drawFrame(fit(canvas, width, height), ep, now.t, h, width, height, "att", false);
    } else drawReach(ep, canvas, h, small, 38);
  }
  for (const button of $("layers").children)
    button.setAttribute("aria-checked", chosen ? chosen.layer === +button.dataset.layer : false);
  put("heads-text", spatial ? "where each looks now" : ep.H ? "how far back each looks now" : "");
}
/** For a head without a map of the frame: its attention over the steps. */
function drawReach(ep, canvas, h, width, height) {
  const g = fit(canvas, width, height), past = ep.past(now.t, h);
  box(g, ink.grid, 0, height - 1, width, 1);
  if (!past) return;
  bars(g, past, 0, width, height - 1, height - 3, ep.T, most(past) || 1, h === now.h ? ink.mass : ink.soft);
  box(g, ink.cursor, (now.t + .5) / ep.T * width, 0, 1, height);
}
/** Bars of numbers over [0, span), the largest of each pixel. */
function bars(g, values, x0, width, base, height, span, top, colour) {
  g.fillStyle = colour;
  const wide = width / span;
  if (wide >= 1) {
    for (let i = 0; i < values.length; i++) if (values[i] > 0) {
      const h = values[i] / top * height;
      g.fillRect(x0 + i * wide, base - h, max(wide - (wide > 4 ? 1 : 0), 1), h);
    }
    return;
  }
  const columns = new Floats(ceil(width));
  for (let i = 0; i < values.length; i++) if (values[i] > 0) {
    const x = floor(i * wide);
    if (values[i] > columns[x]) columns[x] = values[i];
  }
  columns.forEach((v, x) => { if (v) g.fillRect(x0 + x, base - v / top * height, 1, v / top * height); });
}
const CARDS = 8, cards = [];
function makeCards() {
  for (let i = 0; i < CARDS; i++) {
    const parts = { canvas: make("canvas"), mass: make("i", { class: "bar" }), effect: make("i", { class: "bar effect" }),
      where: make("span", { class: "text" }), when: make("span", { class: "text soft" }), label: make("span", { class: "text soft" }) };
    const button = make("button", { type: "button", on: { click: () => travelTo(i) } }, ...Object.values(parts));
    $("cards").append(button);
    cards.push({ button, ...parts });
  }
}
function drawCards(ep) {
  const items = recalledNow(ep).slice(0, CARDS);
  // The style sheet defines the number of columns.
  const wide = max(40, floor((roomOf("cards") + 7) / getComputedStyle($("cards")).gridTemplateColumns.split(" ").length - 19));
  const tall = ep.frames ? min(round(wide * ep.frames.height / ep.frames.width), 150) : 0;
  cards.forEach((card, i) => {
    const item = items[i];
    card.button.classList.toggle("gone", !item);
    card.button.disabled = !item;
    if (!item) return;
    card.canvas.hidden = !tall;
    if (tall) ep.draw(fit(card.canvas, wide, tall), middle(item), 0, 0, wide, tall);
    card.mass.style.width = `${100 * item.mass}%`;
    card.effect.style.width = `${100 * (item.kl || 0) / ep.effectScale}%`;
    card.effect.classList.toggle("none", !real(item.kl));
    card.where.textContent = `#${i + 1} ${steps(item.a, item.b).replace(/^steps /, "")}`;
    card.when.textContent = `${percent(item.mass)}, ${ago(now.t, item)}`;
    card.label.textContent = item.label || (real(item.kl) ? nats(item.kl) : "–");
    card.button.title = `go to ${steps(item.a, item.b)}: attention ${percent(item.mass)}` + (real(item.kl) ? `, effect ${nats(item.kl)}` : "");
  });
  put("recall-text", recallText(ep));
  $("back").setAttribute("aria-disabled", !now.stack.length);
  const [where, mass] = ep.H ? ep.tail(now.t, now.h) : ["", 0];
  put("tail", mass >= LITTLE ? `${percent(mass)} of the mass ${where}` : "");
}
/** The step whose frame represents a memory: the most attended one in it, else its middle. */
function middle(item) {
  const past = here().past(now.t, now.h);
  if (!past) return floor((item.a + item.b - 1) / 2);
  let best = item.a;
  for (let s = item.a; s < item.b; s++) if (past[s] > past[best] || !real(past[best])) best = s;
  return best;
}
function recallText(ep) {
  if (!ep.H) return ep.nothing;
  const masses = recalledNow(ep), total = sum(masses.map((item) => item.mass));
  if (!total) return `${headName(ep)}: nothing in reach`;
  const past = ep.past(now.t, now.h) ?? masses.map((item) => item.mass), whole = sum(past);
  let spread = 0;
  for (const v of past) if (v > 0) spread -= v / whole * log(v / whole);
  const length = ep.chunks.length ? ep.units[0][1] - ep.units[0][0] : 1;
  // The spread of a row is unknown where only its largest entries were stored.
  const cut = ep.outside("temporal_tail", now.t, now.h) >= LITTLE;
  return headName(ep) + (length > 1 ? `, ${length}-step chunks` : "") +
    (cut ? "" : `, spread over ${round(exp(spread))} step${round(exp(spread)) === 1 ? "" : "s"}`) + (ep.removal ? "" : "; removal was not measured");
}
