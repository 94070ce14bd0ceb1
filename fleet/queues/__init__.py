"""Where work waits and workers register: Debusine, Copr, recordings.

Begin with `recorded.py`, the smallest; `http.py` is what talks to servers, and `gitlab.py`
(comments) and `webhook.py` (notices) use it too. The queue of kind `tickets` is `fleet/tickets/`.
"""
