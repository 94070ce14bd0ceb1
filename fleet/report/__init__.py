"""Render plan, status, findings and outcomes as text, JSON, Markdown, HTML.

Start with `plan_text`; `words` formats figures, `terminal` and `markdown` lay out lines. The
planner and guards write the reasons (`because`) where they decide.
"""
