/* The memory explorer, numbers: their text, and the arrays of the file. */
const { abs, ceil, exp, floor, log, max, min, round } = Math;
const Floats = Float32Array;
/** NaN is the only number that is not itself. */
const real = (x) => x === x;
const clamp = (x, low, high) => min(high, max(low, x));
/** Mass below which it is not mentioned. */
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
const pen = (canvas) => canvas.getContext("2d");
const radio = (text, act, ...inside) => make("button", { type: "button", role: "radio", text, on: { click: act } }, ...inside);
const companded = (levels, zero) => Floats.from({ length: 256 }, (_, code) => code === 0 ? NaN
  : Math.sign(code - zero) * ((code - zero) / levels) ** 2);
const CODES = { u8: companded(254, 1), u4: companded(14, 1), s8: companded(127, 128) };
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** One array of the file; NaN means absent. Rows are decoded on demand. */
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
