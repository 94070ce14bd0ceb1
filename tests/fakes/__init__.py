"""The written fakes: what plays a part that is not here, and fails on request."""
