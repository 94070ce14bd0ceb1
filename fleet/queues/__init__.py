"""Systems in which requests wait and workers register: Debusine, Copr, recordings.

Start with `recorded.py`, the smallest module. `http.py` connects to servers; `gitlab.py`
(comments) and `webhook.py` (notices) use it too. The queue of kind `tickets` is `fleet/tickets/`.
"""
