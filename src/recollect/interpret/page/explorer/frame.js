/* The present frame and the maps over it. */
const grid = make("canvas");
/** The layers over frame t: [{map, rows, columns, high, colours, unit}], or [{why}] there is none. */
function layers(ep, t, h, kind) {
  const attention = (name, unit, colour, signed) => {
    const numbers = ep.all[name], map = ep.map(name, t, h);
    if (!numbers) return null;
    if (!map) return { why: `no map was kept at step ${t}` };
    return { map, rows: numbers.shape[2], columns: numbers.shape[3], high: numbers.high, colours: colour, unit, signed };
  };
  const salient = (which, colour) => {
    const found = ep.saliency(now.source, which, t), numbers = ep.all[`saliency${now.source}_${which}`];
    if (!numbers) return { why: ep.saliencies.length ? `no ${which} saliency in this source` : "no saliency was recorded" };
    if (!found) return { why: `no saliency at step ${t}` };
    const source = ep.saliencies[now.source];
    return { map: found.map, rows: found.shape[0], columns: found.shape[1], high: numbers.high, colours: colour,
      unit: `${which} saliency (${source.method}, ${which === "actor" ? source.target : "value"}), step ${found.step}`,
      perturbed: source.method === "perturbation" };
  };
  const map = now.map;
  if (kind === "off") return [];
  if (kind === "actor") return [salient("actor", map)];
  if (kind === "critic") return [salient("critic", map)];
  if (kind === "both") return [salient("actor", "orange"), salient("critic", "blue")];
  if (kind === "ww") return [attention("what_where", "what (orange) or where (blue)", "signed", true)
    ?? { why: "no split of what from where" }];
  const found = attention("spatial", "probability per patch", map);
  if (found) return [found];
  if (kind === "topk") return [salient("actor", map)];
  return [{ why: "no attention to places of the frame" }];
}
/** Colours a canvas of columns x rows: share(number) in -1 ... 1, NaN is clear; alpha(share) is how opaque. */
function heat(canvas, numbers, columns, rows, share, table, alpha, signed) {
  canvas.width = columns; canvas.height = rows;
  const g = pen(canvas), image = g.createImageData(columns, rows), pixels = image.data;
  for (let i = 0; i < numbers.length; i++) {
    const v = share(numbers[i]);
    if (!real(v)) continue;
    const colour = 3 * round(255 * (signed ? (v + 1) / 2 : v));
    for (let c = 0; c < 3; c++) pixels[4 * i + c] = table[colour + c];
    pixels[4 * i + 3] = 255 * alpha(v);
  }
  g.putImageData(image, 0, 0);
}
/** Paints a map; opacity follows the number, so that little attention does not tint the frame. */
function paint(g, layer, width, height, opacity) {
  const { map, rows, columns } = layer, table = colours(layer.colours);
  const high = (now.scale === "frame" ? most(map.map(abs)) : layer.high) || 1;
  heat(grid, map, columns, rows, (v) => clamp(v / high, -1, 1), table, (share) => opacity * abs(share) ** 0.7, layer.signed);
  g.imageSmoothingEnabled = now.smooth;
  g.drawImage(grid, 0, 0, width, height);
}
/** Which cells are among the top share of a map. */
function topCells(map, share) {
  const order = range(map.length).filter((i) => map[i] > 0).sort((a, b) => map[b] - map[a]);
  const inside = new Uint8Array(map.length);
  order.slice(0, max(1, round(map.length * share))).forEach((i) => { inside[i] = 1; });
  return inside;
}
function outline(g, inside, rows, columns, width, height) {
  const [w, h] = [width / columns, height / rows], path = new Path2D();
  const at = (y, x) => y >= 0 && x >= 0 && y < rows && x < columns && inside[y * columns + x];
  for (let y = 0; y <= rows; y++) for (let x = 0; x <= columns; x++) {
    if (x < columns && Boolean(at(y, x)) !== Boolean(at(y - 1, x))) { path.moveTo(x * w, y * h); path.lineTo((x + 1) * w, y * h); }
    if (y < rows && Boolean(at(y, x)) !== Boolean(at(y, x - 1))) { path.moveTo(x * w, y * h); path.lineTo(x * w, (y + 1) * h); }
  }
  g.lineWidth = 2.5; g.strokeStyle = "#000a"; g.stroke(path);
  g.lineWidth = 1; g.strokeStyle = "#fff"; g.stroke(path);
}
function mask(g, inside, rows, columns, width, height) {
  g.fillStyle = "rgba(0,0,0,.86)";
  inside.forEach((kept, i) => {
    const [x, y] = [i % columns, floor(i / columns)];
    const [left, top] = [floor(x * width / columns), floor(y * height / rows)];
    if (!kept) g.fillRect(left, top, floor((x + 1) * width / columns) - left, floor((y + 1) * height / rows) - top);
  });
}
function stageSize(ep) {
  if (!ep.frames) return [300, 150];
  const scale = min(340, roomOf("now") - 26) / max(ep.frames.width, ep.frames.height);
  return [round(ep.frames.width * scale), round(ep.frames.height * scale)];
}
const dark = { canvas: make("canvas"), key: "" };
/** Frame t, grey and dark, in its own size: made once a step for all pictures. */
function darkFrame(ep, t) {
  const key = [ep.number, t].join(), { width, height } = ep.frames;
  if (key === dark.key) return dark.canvas;
  [dark.canvas.width, dark.canvas.height] = [width, height];
  const g = pen(dark.canvas);
  dark.key = ep.draw(g, t, 0, 0, width, height) ? key : "";
  g.globalCompositeOperation = "saturation";
  box(g, "rgba(128,128,128,.7)", 0, 0, width, height);
  g.globalCompositeOperation = "multiply";
  box(g, "#9a9a9a", 0, 0, width, height);
  return dark.canvas;
}
/** Frame t with its layers. */
function drawFrame(g, ep, t, h, width, height, kind, edge = true) {
  const found = layers(ep, t, h, kind).filter((layer) => layer.map), first = found[0];
  if (!ep.frames && edge) write(g, "this agent sees no picture", width / 2, height / 2, "#bbb", "center", 13);
  if (first && kind !== "topk" && now.dim && ep.frames) {
    g.imageSmoothingEnabled = width < ep.frames.width;
    g.drawImage(darkFrame(ep, t), 0, 0, width, height);
  } else ep.draw(g, t, 0, 0, width, height);
  if (!first) return;
  if (kind === "topk") { mask(g, topCells(first.map, now.k / 100), first.rows, first.columns, width, height); return; }
  for (const layer of found) paint(g, layer, width, height, now.opacity);
  if (edge && !first.signed) outline(g, topCells(first.map, now.k / 100), first.rows, first.columns, width, height);
}
function drawNow(ep) {
  const [width, height] = stageSize(ep);
  drawFrame(fit($("frame"), width, height), ep, now.t, now.h, width, height, now.ov);
  put("now-text", nowText(ep));
  drawLegend(layers(ep, now.t, now.h, now.ov));
  drawPatch(ep);
}
function actionName(ep, t) {
  const action = ep.all.action.at(t);
  if (!ep.discrete) return [...action].map(short).join(" ");
  return ep.actions[action[0]] ?? [...action].join(" ");
}
function nowText(ep) {
  const event = ep.eventAt(now.t);
  return `step ${now.t} of ${ep.T - 1}${event ? `, ${eventName(event)}` : ""}` +
    (now.t === ep.T - 1 && ep.over ? ", the end" : `, action ${actionName(ep, now.t)}`);
}
function drawLegend(found) {
  const layer = found[0], g = pen($("legend"));
  g.clearRect(0, 0, 140, 9);
  $("legend").hidden = !layer?.map || now.ov === "topk";
  if (!layer) { put("legend-text", "no overlay"); return; }
  if (layer.why) { put("legend-text", layer.why); return; }
  const table = colours(layer.colours);
  for (let x = 0; x < 140; x++) {
    const c = 3 * round(x / 139 * 255);
    box(g, `rgb(${table[c]},${table[c + 1]},${table[c + 2]})`, x, 0, 1, 9);
  }
  const top = most([...layer.map].map(abs)), high = now.scale === "frame" ? top : layer.high;
  const also = found[1]?.map ? " (orange); critic blue" : "";
  put("legend-text", (now.ov === "topk" ? `the top ${now.k} % of places, by ${layer.unit}`
    : `${layer.signed ? `−${short(high)}` : "0"} to ${short(high)} ${layer.unit}${also}`) + ` (this frame's max ${short(top)})` +
    (layer.perturbed ? "; memory held as it was" : ""));
}
function cellAt(event, layer) {
  const { x, y, width, height } = pointerAt(event, $("frame")), { rows, columns } = layer;
  return { x: clamp(floor(x / width * columns), 0, columns - 1), y: clamp(floor(y / height * rows), 0, rows - 1) };
}
function hoverFrame(event) {
  const layer = layers(here(), now.t, now.h, now.ov)[0];
  if (!layer?.map) return;
  const { x, y } = cellAt(event, layer);
  put("hover", `row ${y}, column ${x}: ${short(layer.map[y * layer.columns + x])}`);
}
/** The chosen patch over the whole episode. */
function drawPatch(ep) {
  const numbers = ep.all.spatial;
  $("patch").hidden = !now.patch || !numbers;
  if (!now.patch || !numbers) return;
  const { x, y } = now.patch, width = roomOf("now") - 26, g = fit($("patch-row"), width, 34);
  const cell = y * numbers.shape[3] + x;
  const series = ep.cached(`patch/${cell}/${now.h}`, () => Floats.from(range(ep.T), (t) => {
    const map = now.h < 0 ? ep.map("spatial", t, -1) : numbers.at(t, now.h);
    return map ? map[cell] : NaN;
  }));
  const top = most(series) || 1;
  bars(g, series, 0, width, 33, 32, ep.T, top, ink.mass);
  cursor(g, ep, now.t, width, 34);
  put("patch-text", `row ${y}, column ${x}: ${short(series[now.t])} now, at most ${short(top)}`);
}
