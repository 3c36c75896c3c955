"""Private continuous queries in SQL: the only place where clock, store and source meet.

Here belong the configuration, SQL and its plans, ``feeds`` that rows come from, the steps that apply rows, answer by a
schedule and make both durable, one-off questions, and what people are told of either. What an answer costs is computed
by the algorithms and ``privacy``, not here.
"""
