"""Where work waits and workers register: Debusine, Copr, recordings.

Begin with `recorded.py`, the smallest; `http.py` is what talks to servers.
"""
