"""HTTP: protocol, connection limiter, routes, OpenAPI."""
