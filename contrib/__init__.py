"""Pieces for other systems; no command of fleet uses them."""
