"""Tickets: claims to one machine, opened at the command line or by clients of Resalloc.

A ticket is `model/tickets.py`. Begin with `desk` (a queue of tickets), then `handout` (which
machines are free, why tickets wait) and `assignment` (which ticket is first, and which machine
may be used again). `store` reads and writes them in a database, in the tables that
`state/database.py` declares; `service` and `xml_rpc` serve clients.
"""
