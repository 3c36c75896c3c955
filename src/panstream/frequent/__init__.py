"""Names that nobody listed beforehand, and how often each of them came: prefix tables and their decoder."""
