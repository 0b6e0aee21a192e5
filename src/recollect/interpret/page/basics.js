/* Shared by both pages: elements, and the blocks of data in the file. */
const $ = (id) => document.getElementById(id);
const put = (id, text) => { $(id).textContent = text; };
const on = (node, event, act) => node.addEventListener(event, act);
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) on(node, event, act);
    else node.setAttribute(name, value);
  node.append(...children);
  return node;
}
/* The blocks of data are behind this script. */
const dataReady = new Promise((done) => {
  if (document.readyState === "loading") on(document, "DOMContentLoaded", done); else done();
});
function bytesOf(id) {
  const text = $(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
function gunzip(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
