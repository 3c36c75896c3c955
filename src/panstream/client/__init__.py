"""Python client for the server."""
