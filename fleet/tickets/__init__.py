"""Tickets: claims to one machine, opened at the command line or by clients of Resalloc.

Begin with `desk` (a queue of tickets), then `handout` and `assignment` (who gets which machine).
`service` and `xml_rpc` serve clients, `tables` stores, `tenancy` says when a machine is reused.
"""
