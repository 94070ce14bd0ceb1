"""What outlives a run: tables, secrets, places, and the commands fleet starts.

Begin with `store.py`; `tables.py` has the columns, `places.py` says where state lies.
"""
