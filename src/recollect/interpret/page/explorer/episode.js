/* One episode: its arrays, maps and frames. */
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
  /** The event that covers most of steps a .. b - 1; questions do not count. */
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
  /** Heads of head -1, the mean: all of the kind that reaches furthest. */
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
  /** Effect of removing every chunk at step t; null where no chunks were removed. */
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
  /** Draws frame t into a rectangle, later if its picture is not decoded yet. */
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
/** As mean_of_heads in recall.py: a place in only some maps counts as 0 in the others; a place in none is NaN. */
function meanMap(maps) {
  const there = maps.filter(Boolean), out = there[0]?.slice().fill(NaN) ?? null;
  for (const map of there) map.forEach((x, i) => { if (real(x)) out[i] = (out[i] || 0) + x / there.length; });
  return out;
}
