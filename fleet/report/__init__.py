"""Values in, text out: plan, status, findings and outcomes as text, JSON, Markdown, HTML.

Begin with `plan_text`; `words` formats figures, `terminal` and `markdown` lay out lines. Why
something is so (`because`) is written where it is decided, in `planner` and `guard`.
"""
