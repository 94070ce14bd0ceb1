"""What outlives a run: tables, secrets, places, and the commands fleet starts.

Begin with `store.py`; `database.py` has the tables, `places.py` says where state lies.
"""
