/* Header and tables. */
function showHeader(ep) {
  put("title", ep.title);
  put("badge", ep.outcome.text);
  showVerdict(ep.verdict);
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
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) => i ? cell(text) : make("th", { scope: "row" }, text instanceof Node ? text : String(text)))))));
}
function showVerdict({ answer, reason, numbers }) {
  const asked = { yes: "Yes, it uses its memory.", no: "No, it does not use its memory.", "cannot tell": "Cannot tell whether it uses its memory." };
  put("verdict-answer", asked[answer] ?? "");
  put("verdict-reason", reason[0] ? reason[0].toUpperCase() + reason.slice(1) : "");
  $("verdict-answer").className = { yes: "good", no: "bad" }[answer] ?? "open";
  $("verdict-numbers").replaceChildren(...numbers.map((one) => make("div", {}, make("dd", { text: one.value }), make("dt", { text: one.name }))));
  $("verdict").hidden = !answer && !reason;
}
/** The three questions: each answer at once, its measures when it is opened. */
function showQuestions(ep) {
  const words = { pass: "passes", fail: "fails" };
  const rows = (part) => part.map((row) => [named(row.name, row.meaning), make("td", { text: row.value, title: row.note }), make("td", { class: "soft", text: row.control }),
    make("td", { class: row.verdict, text: words[row.verdict] ?? "", title: row.note })]);
  $("questions").replaceChildren(...ep.questions.length ? ep.questions.map((one) => make("details", {},
    make("summary", {}, make("b", { text: one.question }), make("span", { text: one.answer })),
    one.rows.length ? table(["measure", "value", "control", ""], rows(one.rows)) : make("p", { class: "soft", text: "Nothing was measured." }),
    ...byHead(one.heads)))
    : [make("p", { class: "soft", text: "No scores were computed for this record: nothing here says whether to believe it." })]);
}
/** Measures of every head, a row a head: value, and control in brackets. */
function byHead({ measures, meanings, rows }) {
  if (!rows.length) return [];
  const cell = (row) => !row ? make("td", { text: "–" }) : make("td", { title: row.note }, row.value,
    ...row.control === "–" ? [] : [make("span", { class: "soft", text: ` (${row.control})` })]);
  return [make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Measures by head" },
    table(["by head", ...measures], rows.map((row) => [row.head, ...row.cells.map(cell)]))),
    make("p", { class: "soft fact", text: meanings })];
}
/** The name of a measure, and what it means. */
const named = (name, meaning) => make("span", {}, name, ...meaning ? [make("span", { class: "soft", text: ` ${meaning}` })] : []);
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
