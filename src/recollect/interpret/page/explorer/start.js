/* Controls, the address, and the start of the page. */
function wire() {
  on(document, "keydown", press);
  for (const button of document.querySelectorAll("[data-key]")) on(button, "click", () => ACTS[button.dataset.key]());
  on($("copy"), "click", copyLink);
  on($("save"), "click", savePicture);
  for (const id of ["scale", "map", "source", "align", "without"]) on($(id), "change", (event) => { now[id] = event.target.value; schedule(); });
  on($("slots-source"), "change", schedule);
  for (const name of ["opacity", "k"]) on($(name), "input", () => nudge(name, name, 0));
  const scrub = (event) => { if (event.buttons & 1) go(stepAt(event)); };
  on($("timeline"), "pointerdown", (event) => { $("timeline").setPointerCapture?.(event.pointerId); go(stepAt(event)); });
  on($("timeline"), "pointermove", scrub);
  on($("frame"), "pointermove", hoverFrame);
  on($("frame"), "pointerleave", () => { put("hover", ""); });
  on($("frame"), "click", (event) => {
    const layer = layers(here(), now.t, now.h, "att")[0];
    if (layer?.map) { now.patch = cellAt(event, layer); schedule(); }
  });
  on($("matrix-picture"), "pointermove", hoverMatrix);
  on($("matrix-picture"), "click", (event) => { const at = matrixAt(event); if (at) go(at.t); });
  on($("table"), "toggle", () => showTable(here()));
  on(window, "hashchange", () => { readAddress(); schedule(); });
  on(matchMedia("(prefers-color-scheme: light)"), "change", () => { readInk(); schedule(); });
}
function makeControls(meta) {
  for (const button of $("overlays").children) on(button, "click", () => setOverlay(button.dataset.kind));
  $("records").hidden = episodes.length < 2;
  $("records").replaceChildren(...episodes.map((ep, i) => radio(`${"AB"[i]}: ${ep.name}`, () => show(i))));
  $("map").options[3].hidden = meta.style !== "thesis";
  if (meta.style === "thesis") Object.assign(now, { map: "jet", scale: "frame", smooth: true });
  for (const name of ["map", "scale", "opacity", "k"]) $(name).value = now[name];
  $("smooth").setAttribute("aria-pressed", now.smooth);
  put("k-text", `${now.k} %`);
}
/** Shows one episode in the panels. */
function show(number) {
  const t = memx.ready ? aligned(here(), episodes[number], now.t) : null, h = memx.ready ? headOf(episodes[number]) : null;
  now.record = number;
  const ep = here();
  now.h = h ?? (ep.H ? ep.opening.head : 0);
  now.t = t ?? ep.opening.step;
  now.stack = []; now.patch = null; fixedKey = "";
  $("tools").hidden = !["att", "ww", "actor", "critic"].some((kind) => has(ep, kind));
  for (const id of ["recall", "matrix-button"]) $(id).hidden = !ep.all.temporal;
  for (const button of $("overlays").children) button.hidden = !has(ep, button.dataset.kind);
  $("timeline").setAttribute("aria-valuemax", ep.T - 1);
  [...$("records").children].forEach((button, i) => button.setAttribute("aria-checked", i === number));
  $("source").replaceChildren(...ep.saliencies.map((one, i) => make("option", { value: String(i), text: `${one.method}, ${one.target}` })));
  $("source").hidden = ep.saliencies.length < 2;
  $("slots-source").replaceChildren(...ep.slots.map((slot, i) => make("option", { value: String(i), text: `${slot.kind}: ${slot.name}` })));
  makeHeads(ep); showHeader(ep); showQuestions(ep); showTrackKeys(ep);
  if (memx.ready) schedule();
}
/** Whether an episode has the maps of an overlay. */
function has(ep, kind) {
  const saliency = (which) => ep.saliencies.some((_, i) => ep.all[`saliency${i}_${which}`]);
  return { att: ep.all.spatial, ww: ep.all.what_where, actor: saliency("actor"), critic: saliency("critic"),
    both: saliency("actor") && saliency("critic"), topk: ep.all.spatial || saliency("actor"), off: true }[kind];
}
function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1)), ep = here();
  const t = wanted.get("t"), h = wanted.get("h"), ov = wanted.get("ov");
  if (t && Number.isFinite(+t)) now.t = clamp(round(+t), 0, ep.T - 1);
  setHead(h === "mean" ? -1 : +h - 1 in ep.heads ? +h - 1 : now.h);
  if ($("overlays").querySelector(`[data-kind="${CSS.escape(ov ?? "")}"]`)) setOverlay(ov);
}
/** For tests and the console: numbers as the page decodes them; NaN means absent. */
function values(name, t, h) {
  const ep = here(), numbers = ep.all[name];
  if (name === "temporal") return [...ep.past(t, h) ?? []];
  if (name === "policy") return [...ep.policy(t)];
  if (!numbers) throw new Error(`there are ${Object.keys(ep.all)}`);
  if (!numbers.every) return [...numbers.part(t * numbers.rowSize, numbers.rowSize)];
  return [...(h === undefined || numbers.shape.length < 3 ? numbers.at(t) : ep.map(name, t, h)) ?? []];
}
Object.assign(memx, { values, sentence: () => sentence(), head: (h) => { setHead(h); draw(); }, go: (t) => { go(t); draw(); }, redraw: draw,
  state: () => ({ ...now, stack: [...now.stack], steps: here().T, heads: here().H }) });

async function start() {
  const meta = JSON.parse($("meta").textContent);
  if (meta.format !== "memx-1") throw new Error(`this page has format ${meta.format}; its script reads memx-1`);
  await dataReady;
  const buffers = await Promise.all(meta.records.map((_, i) => gunzip(bytesOf(`data-${i}`))));
  MAPS = meta.colours;
  pairing = meta.knots ?? [];
  episodes = meta.records.map((record, i) => new Episode(record, buffers[i], i));
  readInk();
  makeControls(meta); makeCards(); makeCompare();
  show(0);
  setOverlay(["att", "actor", "critic", "off"].find((kind) => has(here(), kind)));
  readAddress();
  wire();
  watchPanels();
  draw();
  await Promise.all(episodes.flatMap((ep) => ep.bitmaps.filter((one) => one instanceof Promise)));
  draw();
  Object.assign(memx, { ready: true, opened: performance.now() });
}
start().catch((error) => {
  document.querySelector("main").replaceChildren(make("p", { class: "error", role: "alert", text: `This page cannot be opened: ${error.message}` }));
  throw error;
});
