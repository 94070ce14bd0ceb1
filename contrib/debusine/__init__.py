"""Debusine matching in SQL and Django `Q`, for its developers: see README.md."""
