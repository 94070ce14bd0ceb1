"""Images: recipe, build, test, publish, promote, prune.

Begin with `disk.py` and `bake.py` (build), then `checks.py` and `boot.py` (test), `publish.py`,
`promote.py`, `prune.py`. `due.py` says which images need a build; `folder.py` is a build on disk.
"""
