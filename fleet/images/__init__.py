"""Images: recipe, build, test, publish, promote, prune.

Start reading with `disk.py` (build), then `checks.py` and `boot.py` (test),
`publish.py`, `promote.py`, `prune.py`. `instance.py` bakes on a machine at Hetzner. `due.py` finds
the images that need a build; `folder.py` keeps builds on disk; `records.py` has the records that
no other room uses. `commands.py` is `fleet image`.
`root.sh` has the functions that run inside the root of an image, `bake.sh` the steps of a build.
"""
