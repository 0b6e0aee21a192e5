/* State of the page, keys and travel in time. */
const now = { t: 0, h: 0, ov: "att", dim: true, smooth: false, opacity: .85, k: 20, scale: "episode", map: "inferno", lag: false,
  matrix: true, record: 0, source: 0, align: "step", without: "0", patch: null, stack: [], playing: false };
let episodes = [], pairing = [], frameRequest = 0, last = 0;
const here = () => episodes[now.record];
const memx = window.memx = { ready: false };
function draw() {
  const ep = here();
  put("sentence", sentence());
  const slider = $("timeline");
  slider.setAttribute("aria-valuenow", now.t);
  slider.setAttribute("aria-valuetext", sentence());
  for (const part of [drawNow, drawHeads, drawCards, drawTrack, showTable]) part(ep);
  for (const [id, part] of Object.entries({ matrix: drawMatrix, policy: drawPolicy, past: drawPast, slots: drawSlots, compare: drawCompare }))
    if (!unseen.has(id)) part(ep);
}
/** Panels outside the viewport are drawn when they return. */
const unseen = new Set();
function watchPanels() {
  const watch = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) unseen[isIntersecting || target.hidden ? "delete" : "add"](target.id);
    schedule();
  });
  for (const panel of $("below").children) watch.observe(panel);
  new ResizeObserver(() => { rooms.clear(); fixedKey = ""; schedule(); }).observe($("timeline"));
}
function schedule() { if (!frameRequest) frameRequest = requestAnimationFrame(() => { frameRequest = 0; draw(); }); }
let hashing = 0;
function remember() {
  clearTimeout(hashing);
  // Inside an iframe the address cannot be written.
  hashing = setTimeout(() => { try { history.replaceState(null, "", address()); } catch {} }, 300);
}
const address = () => `#t=${now.t}&h=${now.h < 0 ? "mean" : now.h + 1}&ov=${now.ov}`;
function go(t) { now.t = clamp(round(t) || 0, 0, here().T - 1); remember(); schedule(); }
function travel(t) {
  now.stack.push(now.t);
  go(t);
  say(`went to step ${now.t}`);
}
function travelTo(i) { const item = recalledNow()[i]; if (item) travel(middle(item)); }
function back() { if (now.stack.length) { go(now.stack.pop()); say(`back at step ${now.t}`); } }
function setHead(h) { if ((h === -1 && here().H > 1) || (h >= 0 && h < here().H)) { now.h = h; remember(); schedule(); } }
const layerOf = (ep) => ep.heads[max(now.h, 0)]?.layer;
/** Keys 1 ... 9: of few heads that one, of many that one of the chosen layer. */
function numberedHead(n) {
  const ep = here(), among = range(ep.H).filter((h) => ep.H <= 9 || ep.heads[h].layer === layerOf(ep));
  if (n < among.length) setHead(among[n]);
}
function nextLayer() {
  const ep = here(), all = [...new Set(ep.heads.map((head) => head.layer))];
  setHead(ep.heads.findIndex((head) => head.layer === all[(all.indexOf(layerOf(ep)) + 1) % all.length]));
}
function setOverlay(kind) {
  if ((now.ov === "actor" && kind === "critic") || (now.ov === "critic" && kind === "actor")) kind = "both";
  now.ov = kind;
  for (const button of $("overlays").children) button.setAttribute("aria-checked", button.dataset.kind === kind);
  remember(); schedule();
}
/** The next (or previous) step of a sorted list; where there is none, nothing. */
function jump(list, forward) {
  const next = forward ? list.find((t) => t > now.t) : list.findLast((t) => t < now.t);
  if (next !== undefined) go(next);
}
const eventSteps = () => here().events.map((event) => event.t);
function nextBookmark() {
  const { marks } = here(), mark = marks.find(({ t }) => t > now.t) ?? marks[0];
  if (mark) { go(mark.t); say(`bookmark at step ${mark.t}: ${mark.why}`); }
}
function play(on = !now.playing) {
  now.playing = on;
  put("play", on ? "❚❚ pause" : "▶ play");
  if (on) { if (now.t === here().T - 1) go(0); last = performance.now(); requestAnimationFrame(tick); }
}
function tick(time) {
  if (!now.playing) return;
  if (time - last >= 1000 / +$("speed").value) {
    last = time;
    if (now.t === here().T - 1) { play(false); return; }
    now.t++; draw(); remember();
  }
  requestAnimationFrame(tick);
}
function toggle(name) {
  now[name] = !now[name];
  if ($(name)?.hasAttribute("aria-pressed")) $(name).setAttribute("aria-pressed", now[name]);
  schedule();
}
function nudge(id, name, by) {
  const input = $(id);
  input.value = +input.value + by;
  now[name] = +input.value;
  put("k-text", `${now.k} %`);
  schedule();
}
async function copyLink() {
  const link = location.href.split("#")[0] + address();
  try { await navigator.clipboard.writeText(link); say("link copied"); } catch { say(address()); }
}
/** The frame, the timeline and the sentence as one picture. */
function savePicture() {
  const [a, b] = [$("frame"), $("track")], canvas = make("canvas");
  canvas.width = a.width + b.width + 42; canvas.height = max(a.height, b.height) + 54;
  const g = pen(canvas);
  box(g, ink.card, 0, 0, canvas.width, canvas.height);
  g.drawImage(a, 14, 40); g.drawImage(b, a.width + 28, 40);
  write(g, `${here().title}: ${sentence()}`, 14, 26, ink.ink, "left", 13);
  canvas.toBlob((blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: `step-${now.t}.png` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  say("picture saved");
}
const ACTS = { " ": () => play(), n: () => jump(eventSteps(), true), p: () => jump(eventSteps(), false), x: nextBookmark, l: nextLayer,
  0: () => setHead(-1), a: () => setOverlay("att"), s: () => setOverlay("actor"), c: () => setOverlay("critic"), k: () => setOverlay("topk"),
  w: () => setOverlay("ww"), o: () => setOverlay("off"), d: () => toggle("dim"), r: () => travelTo(0), b: back, m: () => toggle("matrix"),
  t: () => toggle("lag"), g: () => toggle("smooth"), "[": () => nudge("opacity", "opacity", -.05), "]": () => nudge("opacity", "opacity", .05),
  ",": () => nudge("k", "k", -5), ".": () => nudge("k", "k", 5), "?": () => $("help").showModal(),
  ArrowLeft: (far) => go(now.t - (far ? 10 : 1)), ArrowRight: (far) => go(now.t + (far ? 10 : 1)), Home: () => go(0), End: () => go(here().T - 1) };
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const tag = event.target.tagName;
  if (["SELECT", "INPUT"].includes(tag) && (event.key === " " || event.key.length > 1)) return;
  if (["BUTTON", "SUMMARY", "A"].includes(tag) && event.key === " ") return;
  if (/^[1-9]$/.test(event.key)) numberedHead(+event.key - 1);
  else if (Object.hasOwn(ACTS, event.key)) ACTS[event.key](event.shiftKey);
  else if (!radioArrow(event)) return;
  event.preventDefault();
}
/** Up and down move inside a group of radio buttons; left and right stay steps of time. */
function radioArrow(event) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key], group = event.target.closest?.('[role="radiogroup"]');
  if (!by || !group) return false;
  const all = [...group.querySelectorAll('[role="radio"]:not([hidden])')], next = all[(all.indexOf(event.target) + by + all.length) % all.length];
  next?.focus(); next?.click();
  return true;
}
