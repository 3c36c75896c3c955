"""SQL: parser, expressions, and the states that aggregates share."""
