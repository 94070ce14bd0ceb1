"""The steps of `reconcile`, one per file: each adds its actions to one pool's draft."""
