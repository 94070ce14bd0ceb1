"""State that is kept between runs: tables, secrets, files and processes.

Start with `store.py`; `database.py` has the tables, `storage.py` the locations.
"""
