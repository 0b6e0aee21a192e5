/* Colours, text and canvases. */
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
/** Widths of elements, measured once: measuring forces the browser to compute the layout. */
const rooms = new Map();
function roomOf(id) {
  if (!rooms.has(id)) rooms.set(id, $(id).clientWidth);
  return rooms.get(id);
}
/** Sets the size of a canvas in CSS pixels, and returns its context in the same units. */
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
/** Place of the pointer in an element, in pixels. */
function pointerAt(event, node) {
  const { left, top, width, height } = node.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top, width, height };
}
const box = (g, colour, x, y, w, h) => { g.fillStyle = colour; g.fillRect(x, y, w, h); };
/** A line at step t of a picture of the whole episode. */
const cursor = (g, ep, t, width, height) => box(g, ink.cursor, (t + .5) / ep.T * width - .75, 0, 1.5, height);
function write(g, text, x, y, colour = ink.soft, align = "left", size = 11, halo = false) {
  g.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
  g.textAlign = align;
  g.fillStyle = colour;
  if (halo) g.strokeText(text, x, y);
  g.fillText(text, x, y);
}
