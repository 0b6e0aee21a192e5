/* The live page: a small world, the agent that acts in it (ONNX, run by onnxruntime-web), and its memory, to be edited.
   No library beside the runtime, no network. ``window.memx`` is what tests ask. Python's twins: the world is
   tasks/worlds/t_maze.py, its picture t_maze_picture.py, what erasing means occlusion.py. */
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
/* The blocks of data stand behind this script: the page is there before they are. */
const whole = new Promise((done) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done); else done();
});
function bytes(id) {
  const text = $(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}
const meta = JSON.parse($("meta").textContent);
const { agent, world: settings } = meta;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- the worlds: one class for each entry of LIVE_WORLDS ----

class TMaze {
  constructor(config, up) {
    this.config = config; this.up = up; this.x = 0; this.clock = 0; this.seen = config.active ? -1 : 0;
    this.reward = 0; this.score = null; this.over = false; this.turn = 0;
  }
  get cue() { return this.config.active ? -1 : 0; }
  copy() { return Object.assign(new TMaze(this.config, this.up), this); }
  mirrored() { return Object.assign(this.copy(), { up: !this.up }); }
  /* Start, junction, cue up, cue down. */
  observe() {
    const cue = this.x === this.cue;
    return Float32Array.of(this.x === 0, this.x === this.config.length, cue && this.up, cue && !this.up);
  }
  step(action) {
    const { length, active, slack, penalty } = this.config;
    const at = this.x === length, turned = at && action % 2 === 1, right = (action === 1) === this.up;
    let idle = !turned && (at || action !== 0);
    if (active) idle &&= action !== 2 || this.x !== 0 || this.seen >= 0;
    this.x = Math.min(Math.max(this.x + [1, 0, -1, 0][action], this.cue), length);
    this.clock += 1;
    if (this.x === this.cue) this.seen = this.clock;
    this.turn = turned ? (action === 1 ? 1 : -1) : 0;
    this.reward = Math.fround((turned && right ? 1 : 0) - (idle ? Math.fround(penalty) : 0));
    this.over = turned || this.clock >= length + 1 + 2 * active + slack;
    if (this.over) this.score = turned && right ? 1 : 0;
  }
  /* What a step showed, in words; empty where there is nothing to say. */
  says() { return this.x === this.cue ? `cue ${this.up ? "up" : "down"}` : this.x === this.config.length ? "junction" : ""; }
  outcome() {
    if (!this.over) return ["open", "playing"];
    if (!this.turn) return ["bad", "out of time"];
    return this.score ? ["good", "right side"] : ["bad", "wrong side"];
  }
  draw(canvas) {
    const size = 16, { length } = this.config, shown = Math.min(19, length + 1 - this.cue);
    const first = Math.min(Math.max(this.x - (shown >> 1), this.cue), length + 1 - shown);
    canvas.width = shown * size; canvas.height = 5 * size;
    const pen = canvas.getContext("2d");
    const fill = (row, column, paint, inset = 0) => {
      pen.fillStyle = paint;
      pen.fillRect(column * size + inset, row * size + inset, size - 2 * inset, size - 2 * inset);
    };
    pen.fillStyle = "#14171b"; pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = "#585c62"; pen.fillRect(0, size, canvas.width, 3 * size);
    for (let place = first; place < first + shown; place++)
      fill(2, place - first, place === this.cue ? "#345cb2" : place % 2 ? "#2e3238" : "#26292e");
    if (length < first + shown) { // only in the page of a person: the agent does not see it
      fill(1, length - first, this.up ? "#1e9646" : "#96322d"); fill(3, length - first, this.up ? "#96322d" : "#1e9646");
    }
    fill(2 - this.turn, this.x - first, "#ffd60a", 3);
    if (this.x === this.cue) {
      const left = (this.x - first) * size, [tip, base] = this.up ? [2, 14] : [14, 2];
      pen.beginPath(); pen.moveTo(left + 8, tip); pen.lineTo(left + 14, base); pen.lineTo(left + 2, base); pen.fill();
    }
    const y = 4 * size + 6, middle = Math.round((this.x - this.cue) / (length - this.cue) * (canvas.width - 8));
    pen.fillStyle = "#585c62"; pen.fillRect(0, y, canvas.width, 4);
    pen.fillStyle = "#ffd60a"; pen.fillRect(middle, y, 8, 4);
  }
}
const WORLDS = { "t-maze": TMaze };

// ---- the agent ----

let ort = null, session = null;
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array };

async function load() {
  progress(0.05, "reading this file");
  await whole;
  progress(0.15, "unpacking the runtime");
  const unzipped = new Blob([bytes("binary")]).stream().pipeThrough(new DecompressionStream("gzip"));
  const address = URL.createObjectURL(new Blob([bytes("runtime")], { type: "text/javascript" }));
  const [engine, binary] = await Promise.all([import(address), new Response(unzipped).arrayBuffer()]);
  ort = engine;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = binary;
  progress(0.4, "starting the runtime and the agent");
  const made = await ort.InferenceSession.create(bytes("model"), { executionProviders: ["wasm"] });
  progress(0.95, "the agent meets its first observation");
  return made;
}

/* A line that says how far the loading is; the world can be walked meanwhile. */
function progress(share, text) {
  $("loading").hidden = share >= 1;
  $("loading-bar").value = share;
  $("loading-text").textContent = text;
}

/* A state is a list of typed arrays that nobody writes to; editing makes new ones. */
const initial = () => agent.leaves.map((leaf) => {
  const kind = ARRAYS[leaf.dtype], size = leaf.shape.reduce((a, b) => a * b, 1);
  if (!leaf.first) return new kind(size);
  return leaf.dtype === "int64" ? kind.from(leaf.first, BigInt) : kind.from(leaf.first);
});

const made = (t) => agent.chunks ? Math.max(0, Math.floor((t - agent.chunks.overlap) / agent.chunks.stride)) : 0;
/* The place of a chunk that begins at a step, in the state before step t. */
const placed = (start, t) => agent.chunks.number - made(t) + start / agent.chunks.stride;
const inside = (hidden, step) => hidden.some(([start, stop]) => start <= step && step < stop);

/* The state without chunks whose steps are all hidden: their length is 0. */
function forget(state, hidden, t) {
  const at = agent.leaves.findIndex((leaf) => leaf.axis === "lengths");
  if (at < 0 || !hidden.length) return state;
  const lengths = state[at].slice();
  for (let chunk = Math.max(0, made(t) - agent.chunks.number); chunk < made(t); chunk++) {
    const start = chunk * agent.chunks.stride;
    let all = true;
    for (let step = start; step < start + agent.chunks.size; step++) all &&= inside(hidden, step);
    if (all) lengths[placed(start, t)] = 0n;
  }
  return state.with(at, lengths);
}

/* What the agent says when it meets the world's present observation with a state; ``next`` is the state after it. */
async function ask(state, world, told, t, hidden) {
  state = forget(state, hidden, t);
  const tensor = (dtype, data, shape) => new ort.Tensor(dtype, data, shape);
  const feeds = {
    observation: tensor("float32", world.observe(), [1, ...agent.observation]),
    action: tensor("int64", BigInt64Array.of(BigInt(told)), [1]),
    reward: tensor("float32", Float32Array.of(world.reward), [1]),
    is_first: tensor("bool", Uint8Array.of(t === 0), [1]),
  };
  if (agent.window) {
    const w = agent.window;
    const seen = Uint8Array.from({ length: w + 1 }, (_, s) => s < w && t - w + s >= 0 && inside(hidden, t - w + s));
    feeds.hidden = tensor("bool", seen, [1, w + 1]);
  }
  agent.leaves.forEach((leaf, i) => { feeds[`state.${leaf.name}`] = tensor(leaf.dtype, state[i], leaf.shape); });
  const known = Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));
  const found = await session.run(known);
  const logits = Array.from(found.policy.data), top = Math.max(...logits);
  const powers = logits.map((x) => Math.exp(x - top)), total = powers.reduce((a, b) => a + b);
  const mass = (name) => found[name] ? Array.from(found[name].data) : null;
  return {
    logits, value: found.value.data[0], policy: powers.map((x) => x / total), window: mass("window"),
    relevance: mass("relevance"), next: agent.leaves.map((leaf) => found[`next.${leaf.name}`].data),
  };
}

/* Two states with the memory of some steps exchanged. */
function exchanged(first, second, start, stop, t) {
  const pair = [first.slice(), second.slice()];
  agent.leaves.forEach((leaf, i) => {
    if (!leaf.axis) return;
    const places = [];
    if (leaf.axis === "steps") {
      for (let step = Math.max(start, t - agent.window); step < stop; step++) places.push(agent.window - t + step);
    } else if (placed(start, t) >= 0 && start / agent.chunks.stride < made(t)) places.push(placed(start, t));
    const inner = leaf.shape.slice(leaf.place + 1).reduce((a, b) => a * b, 1), long = leaf.shape[leaf.place];
    const ours = first[i].slice(), theirs = second[i].slice();
    for (let outer = 0; outer < ours.length; outer += long * inner) {
      for (const place of places) {
        const from = outer + place * inner;
        ours.set(second[i].subarray(from, from + inner), from);
        theirs.set(first[i].subarray(from, from + inner), from);
      }
    }
    pair[0][i] = ours; pair[1][i] = theirs;
  });
  return pair;
}

const divergence = (p, q) => Math.max(0, p.reduce((sum, x, a) => sum + (x > 0 ? x * Math.log(x / q[a]) : 0), 0));

// ---- the episode: ``now`` is all of it, never changed, so that going back is taking an older one ----

let now = null, past = [], queue = Promise.resolve(), playing = false;

function begin(up) {
  const world = new WORLDS[settings.key](settings.config, up);
  past = [];
  now = { t: 0, world, twin: world.mirrored(), state: initial(), other: initial(), plain: initial(), told: 0,
    hidden: [], swapped: [], trace: [world.copy()], log: [], walked: [] };
}

/* Memories that can be edited before step t: chunks, groups of steps in a window, or all there is. */
function memories(t) {
  if (!agent.unit) return t ? [[0, t]] : [];
  const { stride, size, number } = agent.chunks ?? { stride: agent.group, size: agent.group, number: Infinity };
  const count = agent.chunks ? made(t) : Math.floor(t / stride), found = [];
  for (let i = Math.max(0, count - number); i < count; i++) {
    const start = i * stride, stop = start + size;
    if (agent.chunks || stop > t - agent.window) found.push([start, stop]);
  }
  return found;
}

const same = (a) => (b) => a[0] === b[0] && a[1] === b[1];

/* Asks the agent about the present step: as it is, as it would be without any edit, and without each memory. */
async function think() {
  const { t, world, told, hidden } = now;
  if (world.over || now.said || !session) return;
  now.said = await ask(now.state, world, told, t, hidden);
  now.otherSaid = await ask(now.other, now.twin, told, t, []);
  now.plainSaid = now.log.some((one) => one.edit) ? await ask(now.plain, world, told, t, []) : now.said;
  now.cards = [];
  for (const [start, stop] of memories(t)) {
    const card = { start, stop, erased: hidden.some(same([start, stop])), swapped: now.swapped.some(same([start, stop])) };
    if (!card.erased) {
      const without = agent.unit ? await ask(now.state, world, told, t, [...hidden, [start, stop]])
        : await ask(initial(), world, told, t, []);
      card.kl = divergence(now.said.policy, without.policy);
      card.policy = without.policy;
    }
    card.mass = 0;
    if (agent.chunks) card.mass = now.said.relevance[placed(start, t)];
    else if (now.said.window)
      for (let step = Math.max(start, t - agent.window); step < stop; step++) card.mass += now.said.window[agent.window - t + step];
    now.cards.push(card);
  }
}

async function act(action = null) {
  if (now.world.over) return;
  const { said, t } = now;
  if (!said) { if (action !== null) walk(action); return; }
  const best = said.logits.indexOf(Math.max(...said.logits));
  const chosen = action ?? best, world = now.world.copy(), twin = now.twin.copy();
  world.step(chosen); twin.step(chosen);
  past.push(now);
  const line = { t, text: `${agent.actions[chosen]}${action === null ? ` (${percent(said.policy[chosen])})` : ", your choice"}` };
  now = { ...now, t: t + 1, world, twin, told: chosen + agent.start, state: said.next, other: now.otherSaid.next,
    plain: now.plainSaid.next, said: null, cards: [], trace: [...now.trace, world.copy()], log: [...now.log, line] };
}

/* A person's step while the agent is being loaded; the agent is told of it afterwards. */
function walk(action) {
  const world = now.world.copy(), twin = now.twin.copy();
  world.step(action); twin.step(action);
  past.push(now);
  now = { ...now, t: now.t + 1, world, twin, walked: [...now.walked, action], trace: [...now.trace, world.copy()],
    log: [...now.log, { t: now.t, text: `${agent.actions[action]}, your choice` }] };
}

/* The agent is here: it lives the steps that a person has taken. */
async function meet(found) {
  const { walked, world } = now;
  session = found;
  begin(world.up);
  for (const action of walked) { await think(); await act(action); }
}

function edit(card, kind) {
  if (now.world.over || !card || card.erased) return;
  const { t, state, other } = now, { start, stop } = card, where = `${start} to ${stop - 1}`;
  past.push(now);
  now = { ...now, said: null, log: [...now.log, { t, edit: true, text: kind === "erase" ? `memory of steps ${where} erased`
    : `memory of steps ${where} exchanged with the twin's` }] };
  if (kind === "erase") {
    if (agent.unit) now.hidden = [...now.hidden, [start, stop]];
    else now.state = initial();
    return;
  }
  [now.state, now.other] = agent.unit ? exchanged(state, other, start, stop, t) : [other, state];
  const mark = same([start, stop]);
  now.swapped = now.swapped.some(mark) ? now.swapped.filter((one) => !mark(one)) : [...now.swapped, [start, stop]];
}

// ---- the page ----

const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;
function element(kind, text = "", also = {}) {
  const made = document.createElement(kind);
  made.textContent = text;
  return Object.assign(made, also);
}

function show() {
  const { world, t, said } = now, [kind, text] = world.outcome();
  $("badge").className = `badge ${kind}`; $("badge").textContent = text;
  world.draw($("frame"));
  $("frame").setAttribute("aria-label", `Maze from above: cell ${world.x} of ${settings.config.length}, ${text}`);
  $("now-text").textContent = `step ${t} · cell ${world.x} of ${settings.config.length}${world.says() ? ` · ${world.says()}` : ""}`;
  $("sentence").textContent = sentence();
  for (const id of ["step", "play", "end"]) $(id).disabled = world.over || !said;
  $("back").disabled = !past.length;
  $("play").setAttribute("aria-pressed", String(playing));
  $("value").textContent = said && !world.over ? `value ${said.value.toFixed(4)}` : "";
  showPolicy(); showCards();
  $("log").replaceChildren(...now.log.slice(-10).reverse().map((one) =>
    element("li", `step ${one.t}: ${one.text}`, { className: one.edit ? "edit" : "" })));
}

function sentence() {
  const { world, said, plainSaid, t } = now;
  if (world.over) {
    const edits = now.log.filter((one) => one.edit).length;
    return `The episode is over after ${t} actions: ${world.outcome()[1]}${edits ? `, with ${edits} edit${edits > 1 ? "s" : ""} of the memory` : ""}.`;
  }
  if (!said) return `Step ${t}: the agent is being loaded. Until it is here, walk yourself: click an action.`;
  const best = said.logits.indexOf(Math.max(...said.logits));
  let text = `Step ${t}: the agent does "${agent.actions[best]}" with ${percent(said.policy[best])}.`;
  const most = now.cards.filter((card) => !card.erased).sort((a, b) => b.kl - a.kl)[0];
  if (plainSaid !== said) {
    const was = plainSaid.logits.indexOf(Math.max(...plainSaid.logits));
    text += ` With its memory as it was: "${agent.actions[was]}" with ${percent(plainSaid.policy[was])} (KL ${divergence(plainSaid.policy, said.policy).toFixed(2)} nats).`;
  } else if (most) text += ` Erasing steps ${most.start} to ${most.stop - 1} would change the policy by ${most.kl.toFixed(2)} nats.`;
  return text;
}

function showPolicy() {
  const { said, plainSaid, world } = now;
  $("policy-rows").replaceChildren(...agent.actions.map((name, a) => {
    const row = element("tr"), button = element("button", name, { type: "button", disabled: world.over, title: `do this instead` });
    button.onclick = () => later(() => act(a));
    const first = element("th", "", { scope: "row" }), bars = element("td", "", { className: "bars" });
    first.append(button);
    if (said && plainSaid && !world.over) {
      for (const [one, style] of [[said, "bar"], [plainSaid, "bar plain"]]) {
        const bar = element("span", "", { className: style });
        bar.style.width = `${100 * one.policy[a]}%`;
        bars.append(bar);
      }
      row.append(first, bars, element("td", percent(said.policy[a])), element("td", percent(plainSaid.policy[a])),
        element("td", said.logits[a].toFixed(4)));
    } else row.append(first, bars, element("td"), element("td"), element("td"));
    return row;
  }));
}

function showCards() {
  const cards = now.cards ?? [], largest = Math.max(0.05, ...cards.map((card) => card.kl ?? 0));
  const focus = document.activeElement?.dataset?.card;
  $("none").hidden = cards.length > 0;
  $("cards").replaceChildren(...cards.map((card, number) => {
    const box = element("div", "", { className: `memory${card.erased ? " erased" : ""}${card.swapped ? " swapped" : ""}` });
    const told = now.trace.slice(card.start, card.stop), shown = told.find((one) => one.says()) ?? told[0];
    const canvas = element("canvas");
    (card.swapped ? shown.mirrored() : shown).draw(canvas);
    canvas.setAttribute("aria-hidden", "true");
    const says = (card.swapped ? shown.mirrored() : shown).says();
    const bar = (share, kind) => {
      const made = element("span", "", { className: `bar ${kind}` });
      made.style.width = `${100 * share}%`;
      return made;
    };
    box.append(canvas, element("span", `steps ${card.start} to ${card.stop - 1}`, { className: "text" }),
      element("span", `${says || "corridor"}${card.swapped ? " (twin's)" : ""}${card.erased ? ", erased" : ""}`, { className: "text soft" }));
    if (!card.erased) {
      if (agent.unit) box.append(element("span", `attended ${percent(card.mass)}`, { className: "text" }), bar(card.mass, "mass"));
      box.append(element("span", `used ${card.kl.toFixed(3)} nats`, { className: "text" }), bar(card.kl / largest, "effect"));
      const buttons = element("div", "", { className: "buttons" });
      for (const kind of ["erase", "swap"]) {
        const button = element("button", kind, { type: "button" });
        button.setAttribute("aria-label", `${kind} the memory of steps ${card.start} to ${card.stop - 1}`);
        button.dataset.card = `${kind}-${card.start}`;
        button.onclick = () => later(() => edit(now.cards?.find(sameSteps(card)), kind));
        buttons.append(button);
      }
      box.append(buttons);
    }
    return box;
  }));
  if (focus) document.querySelector(`[data-card="${focus}"]`)?.focus();
}
const sameSteps = (card) => (other) => other.start === card.start && other.stop === card.stop;

/* One thing after the other: a click while the agent thinks waits. */
function later(what) {
  queue = queue.then(async () => { await what(); await think(); show(); }).catch(fail);
  return queue.then(() => window.memx.state());
}

function fail(error) {
  playing = false;
  console.error(error);
  progress(1, "");
  $("sentence").textContent = `This page cannot go on: ${error.message ?? error}. It needs WebAssembly and `
    + "DecompressionStream, which current Firefox, Chromium and Safari have.";
  $("sentence").className = "error";
}

async function play(fast = false) {
  if (!session) return;
  if (playing && !fast) { playing = false; show(); return; }
  playing = true;
  while (playing && !now.world.over) {
    await later(() => act());
    if (fast && now.world.x === settings.config.length) break;
    if (!fast) await new Promise((done) => setTimeout(done, 220));
  }
  playing = false;
  show();
}

const back = () => later(() => { playing = false; if (past.length) now = past.pop(); });
const again = (up) => later(() => { playing = false; begin(up); });
let number = 0;
const another = () => { number = (number + 1) % settings.episodes.length; return choose(); };
const choose = () => { $("episode").selectedIndex = number; return again(settings.episodes[number].up); };

const KEYS = { ArrowRight: () => later(() => act()), ArrowLeft: back, " ": () => play(), e: () => play(true), n: another,
  u: () => again(true), d: () => again(false), "?": () => $("help").showModal() };

function wire() {
  const on = { step: KEYS.ArrowRight, back, play: () => play(), end: () => play(true), new: another, up: KEYS.u, down: KEYS.d,
    "help-button": KEYS["?"] };
  for (const [id, what] of Object.entries(on)) $(id).onclick = what;
  settings.episodes.forEach((one) => $("episode").append(element("option", `seed ${one.seed}, cue ${one.up ? "up" : "down"}`)));
  $("episode").onchange = () => { number = $("episode").selectedIndex; choose(); };
  document.addEventListener("keydown", (event) => {
    const what = KEYS[event.key], tag = event.target.tagName;
    if (!what || event.ctrlKey || event.altKey || event.metaKey || $("help").open || tag === "SELECT") return;
    if (event.key === " " && tag === "BUTTON") return;
    event.preventDefault();
    what();
  });
}

window.memx = {
  ready: false,
  state: () => ({ t: now.t, up: now.world.up, x: now.world.x, over: now.world.over, score: now.world.score, reward: now.world.reward,
    observation: Array.from(now.world.observe()), logits: now.said?.logits ?? null, value: now.said?.value ?? null,
    plain: now.plainSaid?.logits ?? null, told: now.told, cards: (now.cards ?? []).map(({ policy, ...card }) => card) }),
  step: (action = null) => later(() => act(action)),
  edit: (kind, start) => later(() => edit(now.cards.find((card) => card.start === start), kind)),
  begin: again, back,
};

(async () => {
  try {
    $("title").textContent = meta.title; document.title = meta.title; $("about").textContent = meta.about;
    $("unit").textContent = meta.unit;
    $("cards").classList.toggle("whole", !agent.unit);
    wire();
    begin(settings.episodes[0].up);
    show();
    window.memx.opened = performance.now();
    const found = await load();
    await later(() => meet(found));
    progress(1, "");
  } catch (error) { fail(error); }
  Object.assign(window.memx, { ready: true, loaded: performance.now() });
})();
})();
