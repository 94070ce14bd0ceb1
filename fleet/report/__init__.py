"""Render plan, status, findings and outcomes as text, JSON, Markdown, HTML.

Start with `document`, then `plan`; `words` formats figures; `terminal`, `markdown` and `html`
draw. The planner and guards write the reasons (`because`) where they decide.
"""
