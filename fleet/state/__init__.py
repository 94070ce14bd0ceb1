"""What outlives a run: tables, secrets, storage, and the commands fleet starts.

Begin with `store.py`; `database.py` has the tables, `storage.py` says where state lies.
"""
