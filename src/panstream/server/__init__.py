"""The engine over HTTP: events in, private answers out. See ``panstream.server.openapi`` for the whole interface."""
