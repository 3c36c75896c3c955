"""Copy published releases to databases and Kafka topics."""
