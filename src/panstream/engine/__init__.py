"""Private continuous queries in SQL: the only place where clock, store and source meet."""
