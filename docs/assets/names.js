/* The theme adds parts after loading that screen readers and keys need more of: names for bars of buttons, focus for what scrolls. */
function nameParts() {
  document.querySelectorAll("nav.md-code__nav").forEach((bar, place) => {
    const name = `Buttons of code block ${place + 1}`
    if (bar.getAttribute("aria-label") !== name) bar.setAttribute("aria-label", name)
  })
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), pre > code:not([tabindex]), p:has(> img:only-child):not([tabindex])")) part.tabIndex = 0
}
new MutationObserver(nameParts).observe(document.documentElement, { childList: true, subtree: true })
nameParts()
