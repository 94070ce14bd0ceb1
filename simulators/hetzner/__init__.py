"""This package holds what listens: programs of fleet that others ask over the network."""
