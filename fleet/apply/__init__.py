"""Carry out plans, once or in a loop, and make all other changes of machines.

Start with run.py. observe.py reads the world, pool.py changes one pool, wire.py creates the
adapters.
"""
