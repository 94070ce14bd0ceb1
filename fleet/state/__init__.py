"""State that is kept between runs: tables, secrets, files and processes.

Start with `store.py`. `database.py` has the tables, and `storage.py` the locations.
"""
