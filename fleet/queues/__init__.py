"""This package holds where work waits and workers register."""
