/* The recalled memories of a step, and the sentence about it. */
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
/** Summary of this step in one or two sentences. */
function sentence(ep = here(), t = now.t, h = now.h) {
  if (!ep.H) return `Step ${t}.${otherEffect(ep, t) || ` ${ep.nothing}`}`;
  if (!ep.all.temporal && ep.all.spatial) return `Step ${t}: ${headName(ep, h)} attends to places of the picture, not to earlier steps.${otherEffect(ep, t)}`;
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
    (middle > 0 ? `, about ${middle} step${middle > 1 ? "s" : ""} ago.` : ", the present.");
  if (pair && !cued(a, b)) text += ` The decision depends on ${steps(...pair.key)}.`;
  if (real(top.kl)) text += ` Removing ${a === top.a && b === top.b ? "it" : `${steps(top.a, top.b)}`} ` +
    `changes the policy by ${nats(top.kl)}.`;
  return text + otherEffect(ep, t);
}
/** Heads are counted from 1, as in their names; slots from 0, as in the state. */
const unitName = (ep, place) => `${ep.removal.unit} ${ep.removal.unit === "head" ? place + 1 : place}`;
/** Effect of removing slots or the whole memory, in words. */
function otherEffect(ep, t) {
  if (!ep.removal || ep.removal.unit === "chunk") return "";
  const [place, kl] = ep.largestEffect(t);
  return !real(kl) ? "" : ` ${ep.removal.unit === "all" ? "Setting the whole memory back" : `Removing ${unitName(ep, place)}`} changes the policy by ${nats(kl)}.`;
}
