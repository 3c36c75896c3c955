"""The engine over HTTP: events in, private answers out.

``http`` has the protocol, the connection limiter, the routes and their OpenAPI description; ``ingest`` takes request
bodies to the engine thread and wipes them; ``service`` reads answers; ``dashboard`` and ``website`` serve pages.
"""
