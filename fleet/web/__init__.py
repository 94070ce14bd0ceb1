"""This package speaks HTTP for the edges: it asks servers, and answers in the background."""
