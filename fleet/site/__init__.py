"""Status pages (`fleet status --site`, `fleet serve --pages`), and `fleet report`.

Start with `content.py`, which reads the facts of the pages, and `files.py`, which renders the
pages. `commands.py` is `fleet report`; it reports a month with `money.py`.
"""
