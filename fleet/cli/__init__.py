"""This package has one module per verb: it wires the edges, calls the core, renders the answer."""
