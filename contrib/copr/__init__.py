"""A hook for the backend of a Copr."""
