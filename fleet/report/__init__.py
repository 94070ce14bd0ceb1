"""Render plan, status, findings and outcomes as text, JSON, Markdown and HTML.

Start with `document`, then `plan`. `terminal`, `markdown` and `html` draw documents. `fleet/words`
formats figures and writes the reasons (`because`) of decisions.
"""
