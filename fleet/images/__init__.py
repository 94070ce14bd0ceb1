"""Images: recipe, build, test, publish, promote, prune.

Begin with `bake.py`; `boot.py` tests a version, `stores.py` publishes it.
"""
