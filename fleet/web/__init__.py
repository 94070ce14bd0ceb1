"""This package asks servers over HTTP for the edges that read them."""
