"""Tickets, each a claim to one machine, opened by a command or by clients of Resalloc.

`model/tickets.py` has the ticket. Start with `desk` (a queue of tickets), then `handout` (free
machines, and why tickets wait) and `assignment` (the order of tickets, and reuse of machines).
`rounds` assigns machines to tickets during a run. `store` reads and writes tickets in the tables
of `state/database.py`. `service` and `xml_rpc` serve clients; `commands` is `fleet ticket`, and
`serve` is `fleet serve`.
"""
