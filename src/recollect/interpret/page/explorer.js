/* The memory explorer: one episode (or two), read from this file, drawn on canvases. No library, no network.
   1 numbers   2 episode   3 what is recalled   4 colours   5 the frame   6 heads and cards   7 timeline
   8 the whole episode   9 policy, past frames, slots   10 two episodes   11 words and tables   12 control */
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const { abs, ceil, exp, floor, log, max, min, round } = Math;
const put = (id, text) => { $(id).textContent = text; };
const Floats = Float32Array;
const on = (node, event, act) => node.addEventListener(event, act);
/** NaN is the only number that is not itself. */
const real = (x) => x === x;
const clamp = (x, low, high) => min(high, max(low, x));
/** Mass below which nothing is said of it. */
const LITTLE = 0.0005;
const product = (shape) => shape.reduce((a, b) => a * b, 1);
const sum = (xs) => { let s = 0; for (const x of xs) if (real(x)) s += x; return s; };
const most = (xs) => { let m = -Infinity; for (const x of xs) if (x > m) m = x; return m; };
const range = (n) => Array.from({ length: n }, (_, i) => i);
const percent = (x) => !real(x) ? "–" : `${x > 0 && x < 0.095 ? (100 * x).toFixed(1) : round(100 * x)} %`;
const short = (x) => x === null || !real(x) ? "–" : abs(x) >= 100 ? x.toFixed(0) : abs(x) >= 0.1 || !x
  ? x.toFixed(2) : +x.toPrecision(2).toString();
const steps = (a, b) => b - a > 1 ? `steps ${a}–${b - 1}` : `step ${a}`;
const nats = (x) => x < 5e-4 ? "about 0 nats" : `${short(x)} nats`;
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, heard] of Object.entries(value)) on(node, event, heard);
    else node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const pen = (canvas) => canvas.getContext("2d");
const radio = (text, act, ...inside) => make("button", { type: "button", role: "radio", text, on: { click: act } }, ...inside);

// ------------------------------------------------------ 1 numbers
function bytesOf(id) {
  const text = $(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
async function gunzip(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
const companded = (levels, zero) => Floats.from({ length: 256 }, (_, code) => code === 0 ? NaN
  : Math.sign(code - zero) * ((code - zero) / levels) ** 2);
const CODES = { u8: companded(254, 1), u4: companded(14, 1), s8: companded(127, 128) };
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** One array of the file; NaN is "absent". Rows are read when they are asked for. */
class Numbers {
  constructor(header, buffer) {
    Object.assign(this, header);
    this.size = product(this.shape);
    this.rowSize = product(this.shape.slice(1));
    const plain = { f32: Floats, i32: Int32Array, f16: Uint16Array, u16: Uint16Array, bool: Uint8Array };
    if (plain[this.enc]) { this.raw = new plain[this.enc](buffer, this.off, this.size); return; }
    const stored = this.enc === "u4" ? (this.size + 1) >> 1 : this.size;
    this.mapSize = product(this.shape.slice(this.shape.length - this.map_axes));
    this.raw = new Uint8Array(buffer, this.off, stored);
    this.scales = new Floats(buffer.slice(this.off + stored, this.off + stored + 4 * this.size / this.mapSize));
  }
  /** Numbers [start, start + count); of maps they lie inside one map. */
  part(start, count) {
    const out = new Floats(count), raw = this.raw;
    if (!this.scales) {
      for (let i = 0; i < count; i++) out[i] = this.enc === "f16" ? half(raw[start + i]) : raw[start + i];
      return out;
    }
    const scale = this.scales[floor(start / this.mapSize)], codes = CODES[this.enc];
    if (this.enc === "u4")
      for (let i = 0, j = start; i < count; i++, j++) out[i] = codes[j & 1 ? raw[j >> 1] >> 4 : raw[j >> 1] & 15] * scale;
    else for (let i = 0; i < count; i++) out[i] = codes[raw[start + i]] * scale;
    return out;
  }
  /** Row of step t, or -1 where none was kept. */
  row(t) {
    if (!this.every) return -1;
    const row = (t - this.row0) / this.every;
    return row < 0 || row >= this.shape[0] || !Number.isInteger(row) ? -1 : row;
  }
  /** The map of step t and head h ([T, heads, ...]), or of step t ([T, ...]); null where none was kept. */
  at(t, h) {
    const row = this.row(t);
    if (row < 0) return null;
    if (h === undefined) return this.part(row * this.rowSize, this.rowSize);
    const count = this.rowSize / this.shape[1];
    return this.part((row * this.shape[1] + h) * count, count);
  }
}

// ------------------------------------------------------ 2 episode
class Episode {
  constructor(meta, buffer, number) {
    Object.assign(this, meta);
    this.number = number;
    this.all = Object.fromEntries(meta.arrays.map((header) => [header.name, new Numbers(header, buffer)]));
    this.H = meta.heads.length;
    this.value = this.curve("value");
    this.reward = this.curve("reward");
    this.logits = this.all.logits;
    this.entropy = this.discrete ? Floats.from(range(this.T), (t) => entropy(this.policy(t))) : null;
    this.units = meta.chunks.length ? meta.chunks : range(this.T).map((t) => [t, t + 1]);
    this.labels = this.units.map(([a, b]) => this.eventOver(a, b)?.label ?? "");
    this.kept = new Map();
    this.bitmaps = meta.frames ? meta.frames.atlases.map(() => null) : [];
  }
  curve(name) { const numbers = this.all[name]; return numbers ? numbers.part(0, numbers.size) : null; }
  policy(t) { return softmax(this.logits.at(t)); }
  /** The event that covers most of steps a .. b - 1; questions do not count, for they are not what is recalled. */
  eventOver(a, b) {
    let best = null, covered = 0;
    for (const event of this.events) {
      const common = min(b, event.t1) - max(a, event.t);
      if (common > covered && !event.query && event.block) [best, covered] = [event, common];
    }
    return best;
  }
  eventAt(t) { return this.events.find((event) => event.block && event.t <= t && t < event.t1); }
  pairAt(t) { return this.pairs.find((pair) => pair.query[0] <= t && t < pair.query[1]); }
  cached(key, compute) {
    if (!this.kept.has(key)) {
      if (this.kept.size > 400) this.kept.clear();
      this.kept.set(key, compute());
    }
    return this.kept.get(key);
  }
  /** Heads that head -1, the mean, stands for: all of the kind that reaches furthest. */
  meanOf() { return this.cached("mean", () => {
    const far = this.heads.some((head) => head.kind === "chunks");
    return range(this.H).filter((h) => !far || this.heads[h].kind === "chunks");
  }); }
  /** A map of [T, heads, ...], or the mean of maps. */
  map(name, t, h) {
    const numbers = this.all[name];
    if (!numbers) return null;
    if (h >= 0) return this.cached(`${name}/${t}/${h}`, () => numbers.at(t, h));
    return this.cached(`${name}/${t}/mean`, () => meanMap(this.meanOf().map((one) => numbers.at(t, one))));
  }
  /** Attention of step t to every step: [T], NaN out of reach or not kept. */
  past(t, h) {
    if (!this.all.temporal_step) return this.map("temporal", t, h);
    if (h < 0) return this.cached(`past/${t}/mean`, () => meanMap(this.meanOf().map((one) => this.past(t, one))));
    return this.cached(`past/${t}/${h}`, () => {
      const weights = this.all.temporal.at(t, h);
      if (!weights) return null;
      const index = this.all.temporal_step.at(t, h), out = new Floats(this.T).fill(NaN);
      weights.forEach((weight, i) => { if (index[i] !== 65535) out[index[i]] = weight; });
      return out;
    });
  }
  /** Mass that is not on the page, or was not read: [text, number]. */
  tail(t, h) {
    const { kind } = this.heads[h < 0 ? this.meanOf()[0] : h], mass = kind === "chunks" ? this.outside("chunk_tail", t, h) : 0;
    return mass >= LITTLE ? ["is relevance of chunks outside the top k, which were not read", mass]
      : ["is outside the largest entries that were stored", this.outside("temporal_tail", t, h)];
  }
  /** The number of a head, or the mean of heads, in an array [T, heads] of masses; 0 where there is none. */
  outside(name, t, h) {
    const numbers = this.all[name], row = numbers?.row(t) ?? -1, heads = h < 0 ? this.meanOf() : [h];
    return row < 0 ? 0 : sum(heads.map((one) => numbers.part(row * this.H + one, 1)[0])) / heads.length;
  }
  /** Mass on every unit (chunk, or step) at step t: [units]. */
  masses(t, h) {
    return this.cached(`mass/${t}/${h}`, () => {
      const relevance = this.map("chunk_rel", t, h);
      if (relevance) return relevance;
      const past = this.past(t, h);
      if (!past) return null;
      if (!this.chunks.length) return past;
      return Floats.from(this.chunks, ([a, b]) => {
        const inside = past.subarray(a, b);
        return inside.some(real) ? sum(inside) : NaN;
      });
    });
  }
  /** Effect of removing every chunk at step t; null where chunks were not what was removed. */
  effects(t) { return this.removal?.unit === "chunk" ? this.cached(`kl/${t}`, () => this.all.mem_kl.at(t)) : null; }
  /** The largest effect of removing a part of a memory without chunks (a slot, or all of it): [place, nats]. */
  largestEffect(t) {
    const kl = this.all.mem_kl.at(t), top = most(kl);
    return [kl.indexOf(top), top > -1 ? top : NaN];
  }
  /** Saliency at step t, or the newest one before it: {map, shape, step}; null where there is none. */
  saliency(source, which, t) {
    const maps = this.all[`saliency${source}_${which}`];
    if (!maps) return null;
    const at = this.cached(`saliency${source}`, () => this.curve(`saliency${source}_steps`));
    let i = at.length - 1;
    while (i >= 0 && at[i] > t) i--;
    const apart = at.length > 1 ? at[1] - at[0] : 1;
    if (i < 0 || t - at[i] >= max(apart, 1)) return null;
    return { map: maps.part(i * maps.rowSize, maps.rowSize), shape: maps.shape.slice(1), step: at[i] };
  }
  /** Draws frame t into a rectangle, later if its picture is not open yet. */
  draw(g, t, x, y, width, height) {
    if (!this.frames) return;
    const { atlases, width: w, height: h } = this.frames;
    const sheet = atlases.findIndex((one) => one.first <= t && t < one.first + one.count);
    if (sheet < 0) return;
    const bitmap = this.bitmaps[sheet];
    if (!bitmap || bitmap instanceof Promise) { this.open(sheet); return false; }
    const place = t - atlases[sheet].first, columns = atlases[sheet].columns;
    g.imageSmoothingEnabled = width < w;
    g.drawImage(bitmap, (place % columns) * w, floor(place / columns) * h, w, h, x, y, width, height);
    return true;
  }
  open(sheet) {
    if (this.bitmaps[sheet]) return this.bitmaps[sheet];
    const bytes = bytesOf(`frames-${this.number}-${sheet}`);
    const opening = createImageBitmap(new Blob([bytes], { type: "image/png" })).then((bitmap) => {
      const open = this.bitmaps.flatMap((one, i) => one && !(one instanceof Promise) ? [i] : []);
      if (open.length >= 6) { this.bitmaps[open[0]].close(); this.bitmaps[open[0]] = null; }
      this.bitmaps[sheet] = bitmap;
      if (memx.ready) schedule();
    });
    return this.bitmaps[sheet] = opening;
  }
}
function softmax(logits) {
  const top = most(logits), out = logits.map((x) => exp(x - top)), total = sum(out);
  return out.map((x) => x / total);
}
function entropy(policy) { let s = 0; for (const p of policy) if (p > 0) s -= p * log(p); return s; }
/** As mean_of_heads in recall.py: a place that only some maps have counts as 0 in the others; one that none has is NaN. */
function meanMap(maps) {
  const there = maps.filter(Boolean), out = there[0]?.slice().fill(NaN) ?? null;
  for (const map of there) map.forEach((x, i) => { if (real(x)) out[i] = (out[i] || 0) + x / there.length; });
  return out;
}

// ------------------------------------------------------ 3 what is recalled
/** Units of the past by attention: [{unit, a, b, mass, kl, dv, label}], most attended first. */
function recalled(ep, t, h) {
  if (!ep.H) return [];
  return ep.cached(`recalled/${t}/${h}`, () => {
    const masses = ep.masses(t, h), effects = ep.effects(t), changes = ep.all.mem_dv?.at(t);
    if (!masses) return [];
    const found = [];
    masses.forEach((mass, unit) => {
      if (!real(mass)) return;
      const [a, b] = ep.units[unit];
      found.push({ unit, a, b, mass, kl: effects ? effects[unit] : NaN, dv: changes ? changes[unit] : NaN,
        label: ep.labels[unit] });
    });
    return found.sort((x, y) => y.mass - x.mass);
  });
}
const recalledNow = (ep = here()) => recalled(ep, now.t, now.h);
const ago = (t, item) => item.b <= t + 1 && t - (item.a + item.b - 1) / 2 >= 1
  ? `${round(t - (item.a + item.b - 1) / 2)} ago` : "now";
function headName(ep, h = now.h) { return h < 0 ? `the mean of ${ep.meanOf().length} heads` : ep.heads[h].name; }
/** What a person should know about this step, in one or two sentences. */
function sentence(ep = here(), t = now.t, h = now.h) {
  if (!ep.H) return `Step ${t}: ${ep.nothing}${otherEffect(ep, t)}`;
  const items = recalled(ep, t, h);
  if (!items.length) return `Step ${t}: ${headName(ep, h)} has no past to recall here` +
    (ep.parts.length ? ", or its maps are in another part." : ".");
  const top = items[0], event = ep.eventOver(top.a, top.b), pair = ep.pairAt(t);
  const past = ep.past(t, h);
  const cued = (a, b) => pair && pair.key[0] < b && a < pair.key[1];
  let [a, b, mass] = [top.a, top.b, top.mass];
  if (event && past && event.t1 <= t && 2 * (event.t1 - event.t) >= b - a) [a, b, mass] = [event.t, event.t1, sum(past.subarray(event.t, event.t1))];
  const middle = round(t - (a + b - 1) / 2);
  const what = [event ? `“${event.label}”` : "", cued(a, b) ? "the cued one" : ""].filter(Boolean).join(", ");
  let text = `Step ${t}: ${headName(ep, h)} puts ${percent(mass)} on ${steps(a, b)}${what ? ` (${what})` : ""}` +
    (middle > 0 ? `, about ${middle} steps ago.` : ", the present.");
  if (pair && !cued(a, b)) text += ` The decision depends on ${steps(...pair.key)}.`;
  if (real(top.kl)) text += ` Removing ${a === top.a && b === top.b ? "it" : `${steps(top.a, top.b)}`} ` +
    `changes the policy by ${nats(top.kl)}.`;
  return text + otherEffect(ep, t);
}
/** What is said of a memory that was removed by slots or as a whole. */
function otherEffect(ep, t) {
  if (!ep.removal || ep.removal.unit === "chunk") return "";
  const [place, kl] = ep.largestEffect(t);
  return !real(kl) ? "" : ` ${ep.removal.unit === "all" ? "Setting the whole memory back" : `Removing slot ${place}`} changes the policy by ${nats(kl)}.`;
}

// ------------------------------------------------------ 4 colours
let MAPS = {};
const tables = {};
/** 256 colours of a map, as [r, g, b, r, ...]. */
function colours(name) {
  if (tables[name]) return tables[name];
  const stops = MAPS[name].match(/.{6}/g).map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const table = new Uint8Array(768);
  for (let i = 0; i < 256; i++) {
    const at = i / 255 * (stops.length - 1), low = min(floor(at), stops.length - 2), share = at - low;
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[low][c] * (1 - share) + stops[low + 1][c] * share;
  }
  return tables[name] = table;
}
const EVENTS = ["#47699c", "#3b7d44", "#85588c", "#8c5f45", "#ab4247", "#33767a", "#6461a8", "#746c2c"];
const ACTIONS = ["#5b8fd6", "#d9a441", "#58b368", "#c25fa8", "#48b8b8", "#cf6a4c", "#8b7fe0", "#a3b04a", "#7d8794", "#e08bb2"];
const QUERY = "#b35f08";
let ink = {};
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "card", "ink", "soft", "mass", "effect", "value", "entropy", "accent", "grid",
    "cursor", "neutral"]) ink[name] = style.getPropertyValue(`--${name}`).trim();
}
const eventName = ({ kind, label, query }) => query && kind !== label ? `${kind}: ${label}` : label;
const eventColour = (ep, event) => event.query ? QUERY : EVENTS[ep.kinds.indexOf(event.label) % EVENTS.length];
/** Widths of elements, measured once: to ask in every step would lay the page out in every step. */
const rooms = new Map();
function roomOf(id) {
  if (!rooms.has(id)) rooms.set(id, $(id).clientWidth);
  return rooms.get(id);
}
/** Gives a canvas a size in CSS pixels, and its pen, in the same units. */
function fit(canvas, width, height) {
  const dense = max(1, devicePixelRatio);
  const [w, h] = [round(width * dense), round(height * dense)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w; canvas.height = h;
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const g = pen(canvas);
  g.setTransform(w / width, 0, 0, h / height, 0, 0);
  g.clearRect(0, 0, width, height);
  return g;
}
const box = (g, colour, x, y, w, h) => { g.fillStyle = colour; g.fillRect(x, y, w, h); };
function write(g, text, x, y, colour = ink.soft, align = "left", size = 11, halo = false) {
  g.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
  g.textAlign = align;
  g.fillStyle = colour;
  if (halo) g.strokeText(text, x, y);
  g.fillText(text, x, y);
}

// ------------------------------------------------------ 5 the frame
const grid = make("canvas");
/** The layers to lay over frame t: [{map, rows, columns, high, low, colours, unit}], or why there is none. */
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
/** Paints a map on the rectangle; opacity follows the number, so that little attention never tints the frame. */
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
/** Frame t, grey and dark, in its own size: made once a step, for the large picture and all small ones. */
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
/** Frame t with what lies over it. */
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
  const box = $("frame").getBoundingClientRect();
  const x = floor((event.clientX - box.left) / box.width * layer.columns);
  const y = floor((event.clientY - box.top) / box.height * layer.rows);
  return { x: clamp(x, 0, layer.columns - 1), y: clamp(y, 0, layer.rows - 1) };
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
  box(g, ink.cursor, (now.t + .5) / ep.T * width - .5, 0, 1, 34);
  put("patch-text", `row ${y}, column ${x}: ${short(series[now.t])} now, at most ${short(top)}`);
}

// ------------------------------------------------------ 6 heads and cards
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
/** A head without a map of the frame: its attention over the steps so far, now at the right. */
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
  // One of as many columns as the style sheet has.
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
/** The step whose frame stands for a memory: the most attended one in it, else its middle. */
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
  // How far a row is spread of which only the largest entries are here, nobody knows.
  const cut = ep.outside("temporal_tail", now.t, now.h) >= LITTLE;
  return headName(ep) + (length > 1 ? `, ${length}-step chunks` : "") +
    (cut ? "" : `, spread over ${round(exp(spread))} steps`) + (ep.removal ? "" : "; removal was not measured");
}

// ------------------------------------------------------ 7 timeline
const fixed = make("canvas");
let fixedKey = "";
/** Rows of the timeline that this episode has: [name, top, height]. */
function trackRows(ep) {
  const wanted = [["events", 22, ep.events.some((event) => event.block)], ["recall", 92, ep.all.temporal],
    ["used (KL)", 24, ep.removal], ["value", 40, true], ["entropy", 30, ep.entropy], ["reward", 22, true], ["action", 14, true]];
  let top = 2;
  const rows = {};
  for (const [name, height, there] of wanted) if (there) { rows[name] = { top, height, base: top + height }; top += height + 7; }
  rows.axis = { top, height: 18 };
  return { rows, height: top + 20 };
}
const GUTTER = 70;
function trackSize(ep) {
  const width = max(200, roomOf("timeline"));
  return { width, left: GUTTER, span: width - GUTTER - 12, ...trackRows(ep) };
}
const xOf = (size, ep, t) => size.left + (t + .5) / ep.T * size.span;
/** What does not change from step to step. */
function drawFixed(ep, size) {
  const key = [ep.number, size.width, window.devicePixelRatio, ink.paper, ink.ink].join();
  if (key === fixedKey) return;
  fixedKey = key;
  const g = fit(fixed, size.width, size.height), { rows } = size, wide = size.span / ep.T;
  for (const [name, row] of Object.entries(rows)) if (name !== "axis")
    write(g, name, size.left - 8, name === "recall" ? row.base - 30 : row.top + row.height / 2 + 4, ink.soft, "right");
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
}
/** Named blocks of the events, clipped to their lengths; x(t) is where step t begins. */
function eventBlocks(g, ep, x, y, height) {
  for (const event of ep.events.filter((one) => one.block)) {
    const wide = max(x(event.t1) - x(event.t) - 1, 2);
    box(g, eventColour(ep, event), x(event.t), y, wide, height);
    g.save(); g.beginPath(); g.rect(x(event.t), y, wide, height); g.clip();
    write(g, eventName(event), x(event.t) + 4, y + height - 5, "#fff");
    g.restore();
  }
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
  const size = trackSize(here()), box = $("track").getBoundingClientRect();
  const share = (event.clientX - box.left - size.left) / size.span;
  return clamp(floor(share * here().T), 0, here().T - 1);
}

// ------------------------------------------------------ 8 the whole episode
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
    `0 to ${short(matrix.high)}` + (matrix.bin > 1 ? `; each pixel is the largest of ${matrix.bin} × ${matrix.bin}` : "") +
    (ep.all.temporal_step ? "; only the largest entries were kept" : ""));
}
function matrixAt(event) {
  const box = $("matrix-picture").getBoundingClientRect(), ep = here(), side = matrixSide(), inner = side - 38 - matrix.band;
  const x = floor((event.clientX - box.left - 34 - matrix.band) / inner * ep.T), t = floor((event.clientY - box.top - matrix.band - 4) / inner * ep.T);
  if (t < 0 || t >= ep.T || x < 0 || x >= ep.T) return null;
  return { t, past: now.lag ? t - x : x };
}
function hoverMatrix(event) {
  const at = matrixAt(event);
  if (!at || at.past < 0 || at.past > at.t) { put("matrix-hover", ""); return; }
  const row = matrixRow(here(), at.t), v = row ? row[at.past] : NaN;
  put("matrix-hover", `now ${at.t}, past ${at.past} (${at.t - at.past} ago): ${real(v) ? percent(v) : "not in reach, or not kept"}`);
}

// ------------------------------------------------------ 9 policy, past frames, slots
function withoutItem(ep) {
  if (ep.removal.unit !== "chunk") {
    const [unit, kl] = ep.largestEffect(now.t);
    return { unit, kl, dv: ep.all.mem_dv.at(now.t)[unit], name: ep.removal.unit === "all" ? "its whole memory" : `slot ${unit}` };
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
  const name = (i) => ep.actions[i] ?? `action ${i}`, best = policy.indexOf(most(policy));
  let text = `Now: ${name(best)} ${percent(policy[best])}.`;
  if (!effects) text += " The effect of removing a memory was not measured.";
  else if (!item || !real(item.kl)) text += " There is no such memory to remove at this step.";
  else {
    const then = changed ? changed.indexOf(most(changed)) : -1;
    text += ` Without ${item.name ?? `${steps(item.a, item.b)}`}: ` + (changed ? `${name(then)} ${percent(changed[then])}` : "the policy was not kept") +
      `; KL ${nats(item.kl)}, value ${item.dv >= 0 ? "+" : "−"}${short(abs(item.dv))}.` +
      (then >= 0 && then !== best ? " It would act differently." : changed ? " It would act the same." : "");
  }
  put("policy-text", text);
}
function drawPolicyBars(ep, policy, changed) {
  const width = clamp(roomOf("policy") - 26, 200, 620), shown = range(policy.length).slice(0, 24);
  const row = changed ? 24 : 18, g = fit($("policy-picture"), width, shown.length * row + 4), left = 92, room = width - left - 52;
  for (const i of shown) {
    const y = i * row + 2;
    write(g, (ep.actions[i] ?? `action ${i}`).slice(0, 14), left - 8, y + 13, ink.ink, "right", 12);
    box(g, ink.neutral, left, y + 2, max(room * policy[i], 1), changed ? 9 : 13);
    if (changed) { box(g, ink.effect, left, y + 12, max(room * changed[i], 1), 9); }
    write(g, changed ? `${round(100 * policy[i])} → ${round(100 * changed[i])} %` : percent(policy[i]), width, y + 14, ink.soft, "right");
  }
}
/** What of past frames is attended to, where the memory keeps places; else plain frames, and words that say so. */
function drawPast(ep) {
  const places = ep.all.past_step;
  $("past").hidden = !ep.H || !ep.frames;
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
  box(g, ink.cursor, (now.t + .5) / ep.T * width - .75, 0, 1.5, height);
  const { name, kind, axes } = ep.slots[number];
  put("slots-text", `${kind} weights of ${name}, ${axes || "queries x slots"}: mean over the first, down: the second, ` +
    `across: steps; 0 to ${short(numbers.high)}`);
}

// ------------------------------------------------------ 10 two episodes
/** The step of another episode that stands at the same place: the same step, or the same share of the same event. */
function aligned(from, to, t) {
  if (from === to) return t;
  if (now.align === "step") return clamp(t, 0, to.T - 1);
  const knots = from.number ? pairing.map(([a, b]) => [b, a]) : pairing;
  const i = max(1, knots.findIndex(([a]) => a > t)), [a, b] = [knots[i - 1], knots[i]];
  return clamp(round(a[1] + (b[0] > a[0] ? (t - a[0]) / (b[0] - a[0]) : 0) * (b[1] - a[1])), 0, to.T - 1);
}
/** The head of another episode that is compared: the same one if it has it, else its best. */
const headOf = (ep) => ep === here() ? now.h : now.h < ep.H && ep.H === here().H ? now.h : ep.opening.head;
const pairRows = [];
function makeCompare() {
  $("compare").hidden = episodes.length < 2;
  if (episodes.length < 2) return;
  for (const ep of episodes) {
    const row = { frame: make("canvas"), track: make("canvas"), text: make("p", { class: "fact" }) };
    $("compare-rows").append(make("div", { class: "pair" }, row.text, row.frame, row.track));
    on(row.track, "click", (event) => {
      const box = row.track.getBoundingClientRect(), t = clamp(floor((event.clientX - box.left) / box.width * ep.T), 0, ep.T - 1);
      go(aligned(ep, here(), t));
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
    box(g, ink.cursor, (t + .5) / ep.T * width - .75, 0, 1.5, 84);
  });
}

// ------------------------------------------------------ 11 words and tables
function showHeader(ep) {
  put("title", ep.title);
  put("badge", ep.outcome.text);
  put("verdict", ep.verdict);
  $("badge").className = `badge ${ep.outcome.mark}`;
  put("about", ep.about);
  $("notes").hidden = !ep.notes.length;
  $("notes").firstElementChild.textContent = ep.noted;
  $("notes").lastElementChild.replaceChildren(...ep.notes.map((text) => make("li", { text })));
  $("parts").hidden = !ep.parts.length;
  $("parts").replaceChildren(...ep.parts.map((part) => make("a", { href: part.href, text: part.text,
    ...(part.here ? { "aria-current": "page" } : {}) })));
}
function table(heads, rows) {
  const cell = (text) => text instanceof Node ? text : make("td", { text: String(text) });
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((text) => text ? make("th", { scope: "col", text }) : make("td")))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) => i ? cell(text) : make("th", { scope: "row", text: String(text) }))))));
}
function showTrust(ep) {
  const words = { pass: "passes", fail: "fails" };
  const rows = ep.trust.map((row) => [row.name, make("td", { text: row.value, title: row.note }), make("td", { class: "soft", text: row.control }),
    make("td", { class: row.verdict, text: words[row.verdict] ?? "", title: row.note })]);
  const some = (part) => table(["measure", "value", "control", ""], part);
  $("trust-rows").replaceChildren(...rows.length ? [some(rows.slice(0, 9))]
    : [make("p", { class: "soft", text: "No scores were computed for this record: nothing here says whether to believe it." })]);
  if (rows.length > 9) $("trust-rows").append(make("details", {}, make("summary", { text: `${rows.length - 9} more measures` }), some(rows.slice(9))));
}
/** The step as a table, for screen readers and for people who want the numbers. */
function showTable(ep) {
  if (!$("table").open) return;
  const items = recalledNow(ep).slice(0, CARDS);
  const facts = [["step", now.t], ["action", actionName(ep, now.t)], ["value", short(ep.value[now.t])],
    ["entropy", ep.entropy ? short(ep.entropy[now.t]) : "–"], ["reward", short(ep.reward[now.t])]];
  $("table-rows").replaceChildren(table(["now", "is"], facts), table(["recalled steps", "attention", "effect, nats", "value change", "event"],
    items.map((item) => [steps(item.a, item.b), percent(item.mass), short(item.kl), short(item.dv), item.label || "–"])));
}
function say(text) { put("live", text); put("said", text); }

// ------------------------------------------------------ 12 control
const now = { t: 0, h: 0, ov: "att", dim: true, smooth: false, opacity: .85, k: 20, scale: "episode", map: "inferno", lag: false,
  matrix: true, record: 0, source: 0, align: "step", without: "0", patch: null, stack: [], playing: false };
let episodes = [], pairing = [], asked = 0, last = 0;
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
/** Panels that are scrolled out of sight: they are drawn when they come back. */
const unseen = new Set();
function watchPanels() {
  const watch = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) unseen[isIntersecting || target.hidden ? "delete" : "add"](target.id);
    schedule();
  });
  for (const panel of $("below").children) watch.observe(panel);
  new ResizeObserver(() => { rooms.clear(); fixedKey = ""; schedule(); }).observe($("timeline"));
}
function schedule() { if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); }); }
let hashing = 0;
function remember() {
  clearTimeout(hashing);
  // In a frame there is no address to write to.
  hashing = setTimeout(() => { try { history.replaceState(null, "", address()); } catch {} }, 300);
}
const address = () => `#t=${now.t}&h=${now.h < 0 ? "mean" : now.h + 1}&ov=${now.ov}`;
function go(t) { now.t = clamp(round(t) || 0, 0, here().T - 1); remember(); schedule(); }
function travel(t) {
  now.stack.push(now.t);
  go(t);
  say(`travelled to step ${now.t}`);
}
function travelTo(i) { const item = recalledNow()[i]; if (item) travel(middle(item)); }
function back() { if (now.stack.length) { go(now.stack.pop()); say(`back at step ${now.t}`); } }
function setHead(h) { if ((h === -1 && here().H > 1) || (h >= 0 && h < here().H)) { now.h = h; remember(); schedule(); } }
const layerOf = (ep) => ep.heads[max(now.h, 0)]?.layer;
/** Key 1 ... 9: of few heads that one, of many that one of the chosen layer. */
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
/** Makes one episode the one that fills the panels. */
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
  makeHeads(ep); showHeader(ep); showTrust(ep);
  if (memx.ready) schedule();
}
/** Whether an episode has what an overlay shows. */
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
/** For tests and for the console: numbers as the page reads them; NaN is "absent". */
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
  // The blocks of data stand behind this script.
  if (document.readyState === "loading") await new Promise((done) => on(document, "DOMContentLoaded", done));
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
  // The first view asked for its pictures.
  await Promise.all(episodes.flatMap((ep) => ep.bitmaps.filter((one) => one instanceof Promise)));
  draw();
  Object.assign(memx, { ready: true, opened: performance.now() });
}
start().catch((error) => {
  document.querySelector("main").replaceChildren(make("p", { class: "error", role: "alert", text: `This page cannot be opened: ${error.message}` }));
  throw error;
});
})();
