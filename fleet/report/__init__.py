"""Render plan, status, findings and outcomes as text, JSON, Markdown and HTML.

Start with `document`, then `plan`. `words` formats figures; `terminal`, `markdown` and `html` draw
documents. The planner and guards write the reasons (`because`) for their decisions.
"""
