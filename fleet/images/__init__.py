"""Images: recipe, build, test, publish, promote, prune.

Begin with `build.py`, then `bake.py`; `boot.py` tests a version, `stores.py` publishes it.
"""
