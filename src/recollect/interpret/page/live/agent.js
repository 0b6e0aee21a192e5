/* The agent (ONNX, run by onnxruntime-web), its memory, and edits of it; erasing is defined in occlusion.py. */
const meta = JSON.parse($("meta").textContent);
const { agent, world: settings } = meta;
let ort = null, session = null;
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array };

async function load() {
  progress(0.05, "reading this file");
  await dataReady;
  progress(0.15, "unpacking the runtime");
  const address = URL.createObjectURL(new Blob([bytesOf("runtime")], { type: "text/javascript" }));
  const [engine, binary] = await Promise.all([import(address), gunzip(bytesOf("binary"))]);
  ort = engine;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = binary;
  progress(0.4, "starting the runtime and the agent");
  const made = await ort.InferenceSession.create(bytesOf("model"), { executionProviders: ["wasm"] });
  progress(0.95, "the first step of the agent");
  return made;
}

/* Shows the progress of loading; meanwhile the person can act in the world. */
function progress(share, text) {
  $("loading").hidden = share >= 1;
  $("loading-bar").value = share;
  $("loading-text").textContent = text;
}

/* A state is a list of typed arrays that are never changed; an edit makes new ones. */
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

/* The agent's output for the world's observation and a state; ``next`` is the state after it. */
async function run(state, world, previousAction, t, hidden) {
  state = forget(state, hidden, t);
  const tensor = (dtype, data, shape) => new ort.Tensor(dtype, data, shape);
  const feeds = {
    observation: tensor("float32", world.observe(), [1, ...agent.observation]),
    previous_action: tensor("int64", BigInt64Array.of(BigInt(previousAction)), [1]),
    reward: tensor("float32", Float32Array.of(world.reward), [1]),
    is_first: tensor("bool", Uint8Array.of(t === 0), [1]),
  };
  if (agent.window) {
    const w = agent.window;
    const seen = Uint8Array.from({ length: w + 1 }, (_, s) => s < w && t - w + s >= 0 && inside(hidden, t - w + s));
    feeds.hidden = tensor("bool", seen, [1, w + 1]);
  }
  agent.leaves.forEach((leaf, i) => { feeds[leaf.input] = tensor(leaf.dtype, state[i], leaf.shape); });
  const known = Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));
  const found = await session.run(known);
  const logits = Array.from(found.policy.data), top = Math.max(...logits);
  const powers = logits.map((x) => Math.exp(x - top)), total = powers.reduce((a, b) => a + b);
  const mass = (name) => found[name] ? Array.from(found[name].data) : null;
  return {
    logits, value: found.value.data[0], policy: powers.map((x) => x / total), window: mass("window"),
    relevance: mass("relevance"), next: agent.leaves.map((leaf) => found[leaf.output].data),
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
