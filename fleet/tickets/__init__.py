"""Tickets, each a claim to one machine, opened by a command or by clients of Resalloc.

`model/tickets.py` has the ticket. Start with `desk` (a queue of tickets), then `tenancy`
(the record of a machine) and `reasons` (why tickets wait). `rounds` assigns machines to tickets
during a run, as `planner/turns.py` chooses them. `store` reads and writes tickets in the tables
of `state/database.py`. `service` and `xml_rpc` serve clients; `commands` is `fleet ticket`, and
`serve` is `fleet serve`.
"""
