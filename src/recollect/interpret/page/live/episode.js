/* The episode. ``now`` is all of it and is never changed, so that going back means taking an older one. */
let now = null, past = [], queue = Promise.resolve(), playing = false;

function begin(up) {
  const world = new WORLDS[settings.key](settings.config, up);
  past = [];
  now = { t: 0, world, twin: world.mirrored(), state: initial(), other: initial(), plain: initial(), previousAction: 0,
    hidden: [], swapped: [], trace: [world.copy()], log: [], walked: [] };
}

/* Memories that can be edited before step t: chunks, groups of steps in a window, or the whole memory. */
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

/* Runs the agent at the present step: as it is, without any edit, and without each memory. */
async function evaluate() {
  const { t, world, previousAction, hidden } = now;
  if (world.over || now.output || !session) return;
  now.output = await run(now.state, world, previousAction, t, hidden);
  now.otherOutput = await run(now.other, now.twin, previousAction, t, []);
  now.plainOutput = now.log.some((one) => one.edit) ? await run(now.plain, world, previousAction, t, []) : now.output;
  now.cards = [];
  for (const [start, stop] of memories(t)) {
    const card = { start, stop, erased: hidden.some(same([start, stop])), swapped: now.swapped.some(same([start, stop])) };
    if (!card.erased) {
      const without = agent.unit ? await run(now.state, world, previousAction, t, [...hidden, [start, stop]])
        : await run(initial(), world, previousAction, t, []);
      card.kl = divergence(now.output.policy, without.policy);
      card.policy = without.policy;
    }
    card.mass = 0;
    if (agent.chunks) card.mass = now.output.relevance[placed(start, t)];
    else if (now.output.window)
      for (let step = Math.max(start, t - agent.window); step < stop; step++) card.mass += now.output.window[agent.window - t + step];
    now.cards.push(card);
  }
}

async function act(action = null) {
  if (now.world.over) return;
  const { output, t } = now;
  if (!output) { if (action !== null) walk(action); return; }
  const chosen = action ?? likeliest(output), world = now.world.copy(), twin = now.twin.copy();
  world.step(chosen); twin.step(chosen);
  past.push(now);
  const line = { t, text: `${agent.actions[chosen]}${action === null ? ` (${percent(output.policy[chosen])})` : ", your choice"}` };
  now = { ...now, t: t + 1, world, twin, previousAction: chosen + agent.start, state: output.next, other: now.otherOutput.next,
    plain: now.plainOutput.next, output: null, cards: [], trace: [...now.trace, world.copy()], log: [...now.log, line] };
}

/* A person's step while the agent is being loaded; the agent sees it afterwards. */
function walk(action) {
  const world = now.world.copy(), twin = now.twin.copy();
  world.step(action); twin.step(action);
  past.push(now);
  now = { ...now, t: now.t + 1, world, twin, walked: [...now.walked, action], trace: [...now.trace, world.copy()],
    log: [...now.log, { t: now.t, text: `${agent.actions[action]}, your choice` }] };
}

/* The agent is loaded: it sees the steps that a person has taken. */
async function replay(found) {
  const { walked, world } = now;
  session = found;
  begin(world.up);
  for (const action of walked) { await evaluate(); await act(action); }
}

function edit(card, kind) {
  if (now.world.over || !card || card.erased) return;
  const { t, state, other } = now, { start, stop } = card, where = `${start} to ${stop - 1}`;
  past.push(now);
  now = { ...now, output: null, log: [...now.log, { t, edit: true, text: kind === "erase" ? `memory of steps ${where} erased`
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
