"""Carry out a plan, once or again and again, and whatever else changes machines.

Begin with run.py; observe.py reads the world, pool.py changes one pool, wire.py makes the edges.
"""
