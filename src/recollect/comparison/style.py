"""Style of a comparison: colours that the colour-blind can distinguish, light and dark."""

LIGHT = ("#6b7280", "#0b6bcb", "#d1540a", "#0f8a5f", "#a43aa0", "#b58900", "#c2255c", "#3c3f9e")
"""Of the groups; the first, which is the one that others are compared with, is grey."""
DARK = ("#9ca3af", "#5aa9ff", "#ff9552", "#3fcf96", "#dd86da", "#e6be3c", "#ff7aa5", "#9a9dff")
"""Of the same groups on a dark page."""


def _variables(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{index}:{colour};" for index, colour in enumerate(colours))


STYLE = f"""
:root {{ color-scheme: light dark; --paper:#fbfbfa; --card:#fff; --ink:#1b1f24; --soft:#5b6470; --faint:#e5e7ea;
  {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper:#14171b; --card:#1b1f25; --ink:#e8eaed; --soft:#a0a8b3;
  --faint:#2e343c; {_variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin:0; background:var(--paper); color:var(--ink); font:15px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1060px; margin: 0 auto; padding: 32px 20px 64px; }}
h1 {{ font-size: 26px; font-weight: 650; margin: 0 0 6px; letter-spacing: -.01em; }}
h2 {{ font-size: 18px; font-weight: 650; margin: 0 0 12px; }}
p.about, figcaption {{ color: var(--soft); margin: 4px 0 0; max-width: 78ch; }}
figcaption {{ font-size: 13px; }}
section {{ background: var(--card); border: 1px solid var(--faint); border-radius: 10px; padding: 20px 24px;
  margin-top: 20px; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }}
th, td {{ padding: 6px 7px; text-align: right; }}
thead th {{ color: var(--soft); font-weight: 500; font-size: 13px; border-bottom: 1px solid var(--faint); }}
tbody th, thead th:first-child {{ text-align: left; font-weight: 550; padding-left: 2px; }}
tbody tr + tr > * {{ border-top: 1px solid var(--faint); }}
tr.known > * {{ color: var(--soft); font-weight: 400; }}
table i, .legend i {{ display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 9px; }}
a {{ color: inherit; text-decoration-color: var(--soft); text-underline-offset: 3px; }}
figure {{ margin: 22px 0 0; max-width: 860px; }}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 6px; padding: 0; }}
svg {{ width: 100%; min-width: 600px; height: auto; display: block; }}
svg text {{ fill: var(--soft) !important; font-variant-numeric: tabular-nums; }}
.notes {{ padding: 14px 24px; }} .notes h2 {{ font-size: 15px; margin-bottom: 4px; }}
.notes ul {{ margin: 0; padding-left: 18px; color: var(--soft); overflow-wrap: anywhere; }}
"""
