/* The shown parts and the controls. ``window.memx`` is for tests. */
const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;
const likeliest = (output) => output.logits.indexOf(Math.max(...output.logits));
const does = (output) => `"${agent.actions[likeliest(output)]}" with ${percent(output.policy[likeliest(output)])}`;
function bar(share, kind) {
  const made = make("span", { class: `bar ${kind}` });
  made.style.width = `${100 * share}%`; // a style attribute would be refused by the page's policy
  return made;
}

function show() {
  const { world, t, output } = now, [kind, text] = world.outcome(), words = world.words();
  $("badge").className = `badge ${kind}`;
  put("badge", text);
  world.draw($("frame"));
  $("frame").setAttribute("aria-label", `Maze from above: cell ${world.x} of ${settings.config.length}, ${text}`);
  put("now-text", `step ${t} · cell ${world.x} of ${settings.config.length}${words ? ` · ${words}` : ""}`);
  put("sentence", sentence());
  for (const id of ["step", "play", "end"]) $(id).disabled = world.over || !output;
  $("back").disabled = !past.length;
  $("play").setAttribute("aria-pressed", String(playing));
  put("value", output && !world.over ? `value ${output.value.toFixed(4)}` : "");
  showPolicy(); showCards();
  $("log").replaceChildren(...now.log.slice(-10).reverse().map((one) =>
    make("li", { text: `step ${one.t}: ${one.text}`, class: one.edit ? "edit" : "" })));
}

function sentence() {
  const { world, output, plainOutput, t } = now;
  if (world.over) {
    const edits = now.log.filter((one) => one.edit).length;
    const edited = edits ? `, with ${edits} edit${edits > 1 ? "s" : ""} of the memory` : "";
    return `The episode is over after ${t} actions: ${world.outcome()[1]}${edited}.`;
  }
  if (!output) return `Step ${t}: the agent is being loaded. Meanwhile, act yourself: click an action.`;
  const text = `Step ${t}: the agent does ${does(output)}.`;
  const most = now.cards.filter((card) => !card.erased).sort((a, b) => b.kl - a.kl)[0];
  if (plainOutput !== output)
    return `${text} Without the edits: ${does(plainOutput)} (KL ${divergence(plainOutput.policy, output.policy).toFixed(2)} nats).`;
  return most ? `${text} Erasing ${stepsOf(most)} would change the policy by ${most.kl.toFixed(2)} nats.` : text;
}

function showPolicy() {
  const { output, plainOutput, world } = now, known = output && plainOutput && !world.over;
  $("policy-rows").replaceChildren(...agent.actions.map((name, a) => {
    const button = make("button", { type: "button", text: name, title: "do this instead", on: { click: () => later(() => act(a)) } });
    button.disabled = world.over;
    const cell = (text) => make("td", { text: known ? text() : "" });
    const bars = known ? [bar(output.policy[a], ""), bar(plainOutput.policy[a], "plain")] : [];
    return make("tr", {}, make("th", { scope: "row" }, button), make("td", { class: "bars" }, ...bars),
      cell(() => percent(output.policy[a])), cell(() => percent(plainOutput.policy[a])), cell(() => output.logits[a].toFixed(4)));
  }));
}

const stepsOf = (card) => `steps ${card.start} to ${card.stop - 1}`;
const sameSteps = (card) => (other) => other.start === card.start && other.stop === card.stop;
function showCards() {
  const cards = now.cards ?? [], largest = Math.max(0.05, ...cards.map((card) => card.kl ?? 0));
  const focus = document.activeElement?.dataset?.card;
  $("none").hidden = cards.length > 0;
  $("cards").replaceChildren(...cards.map((card) => makeCard(card, largest)));
  if (focus) document.querySelector(`[data-card="${focus}"]`)?.focus();
}

function makeCard(card, largest) {
  const part = now.trace.slice(card.start, card.stop), first = part.find((one) => one.words()) ?? part[0];
  const shown = card.swapped ? first.mirrored() : first, canvas = make("canvas", { "aria-hidden": "true" });
  shown.draw(canvas);
  const line = (text, soft = "") => make("span", { class: `text${soft}`, text });
  const state = `${card.swapped ? " (twin's)" : ""}${card.erased ? ", erased" : ""}`;
  const box = make("div", { class: `memory${card.erased ? " erased" : ""}${card.swapped ? " swapped" : ""}` }, canvas,
    line(stepsOf(card)), line(`${shown.words() || "corridor"}${state}`, " soft"));
  if (card.erased) return box;
  if (agent.unit) box.append(line(`attended ${percent(card.mass)}`), bar(card.mass, "mass"));
  box.append(line(`used ${card.kl.toFixed(3)} nats`), bar(card.kl / largest, "effect"));
  box.append(make("div", { class: "buttons" }, ...["erase", "swap"].map((kind) => make("button", { type: "button", text: kind,
    "data-card": `${kind}-${card.start}`, "aria-label": `${kind} the memory of ${stepsOf(card)}`,
    on: { click: () => later(() => edit(now.cards?.find(sameSteps(card)), kind)) } }))));
  return box;
}

/* Runs tasks one after the other: a click while the agent is running waits. */
function later(what) {
  queue = queue.then(async () => { await what(); await evaluate(); show(); }).catch(fail);
  return queue.then(() => window.memx.state());
}

function fail(error) {
  playing = false;
  console.error(error);
  progress(1, "");
  put("sentence", `This page cannot continue: ${error.message ?? error}. It needs WebAssembly and DecompressionStream, `
    + "which current Firefox, Chromium and Safari have.");
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
  const clicks = { step: KEYS.ArrowRight, back, play: () => play(), end: () => play(true), new: another, up: KEYS.u, down: KEYS.d,
    "help-button": KEYS["?"] };
  for (const [id, act] of Object.entries(clicks)) on($(id), "click", () => act());
  settings.episodes.forEach((one) => $("episode").append(make("option", { text: `seed ${one.seed}, cue ${one.up ? "up" : "down"}` })));
  on($("episode"), "change", () => { number = $("episode").selectedIndex; choose(); });
  on(document, "keydown", (event) => {
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
    observation: Array.from(now.world.observe()), logits: now.output?.logits ?? null, value: now.output?.value ?? null,
    plain: now.plainOutput?.logits ?? null, cards: (now.cards ?? []).map(({ policy, ...card }) => card) }),
  step: (action = null) => later(() => act(action)),
  edit: (kind, start) => later(() => edit(now.cards.find((card) => card.start === start), kind)),
  begin: again, back,
};

(async () => {
  try {
    document.title = meta.title;
    for (const id of ["title", "about", "unit"]) put(id, meta[id]);
    $("cards").classList.toggle("whole", !agent.unit);
    wire();
    begin(settings.episodes[0].up);
    show();
    window.memx.opened = performance.now();
    const found = await load();
    await later(() => replay(found));
    progress(1, "");
  } catch (error) { fail(error); }
  Object.assign(window.memx, { ready: true, loaded: performance.now() });
})();
