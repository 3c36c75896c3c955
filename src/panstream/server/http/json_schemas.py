"""JSON Schemas of the HTTP interface."""

from __future__ import annotations

from typing import Any

from panstream.server.http.health_schema import HEALTH


def _object(properties: dict[str, Any], optional: tuple[str, ...] = (), text: str = "") -> dict[str, Any]:
    return {
        "type": "object",
        **({"description": text} if text else {}),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": text} if text else {})}


def _pair(items: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {**_list(items, text), "minItems": 2, "maxItems": 2}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _maybe(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_TIME = {"type": "string", "format": "date-time"}
_EPSILON = {"oneOf": [{"type": "number"}, {"const": "inf"}], "description": 'A number, or "inf": no privacy.'}
_EPSILON_OR_NULL = {"oneOf": [{"type": "number"}, {"const": "inf"}, {"type": "null"}]}
_WINDOW = {
    **_maybe("number"),
    "description": "Of unit user-window: seconds of a window (2766600: a calendar month).",
}
_MANY = {"oneOf": [{"type": "integer"}, {"const": "any"}]}
_COVERED = {**_FLAG, "description": "Whether the copy is covered as an announced one."}

_RELEASE = {
    "query": {**_TEXT, "description": "The query's name."},
    "series": {**_TEXT, "description": "The query's name and the group: `visits [region=north]`."},
    "number": {**_INTEGER, "description": "1, 2, ... within its series."},
    "time": {**_TIME, "description": "When it was published."},
    "value": {
        **_maybe("number"),
        "description": "Null if there are no data, or only an interval is known. Of MIN and MAX the edge beyond which "
        "some value lies.",
    },
    "unclipped": {
        **_maybe("number"),
        "description": "The estimate before it was moved into what is possible by public bounds: for sums and means of "
        "answers.",
    },
    "standard_error": {**_maybe("number"), "description": "Null where there is none."},
    "interval": _pair(_maybe("number"), "Low and high end; null is open."),
    "level": {**_NUMBER, "description": "Coverage of the interval: 0.95."},
    "epsilon": _EPSILON,
    "unit": {**_TEXT, "description": "What it protects: user, event, user-window ..."},
    "group": {"type": "object", "description": "Values of the GROUP BY columns."},
    "window": _pair(_TIME, "Begin and end."),
    "end": {**_TIME, "description": "End of its slot: it counts the rows that came before the stream reached it."},
    "since": {
        **_TIME,
        "description": "When the query was added or started over, if it has not seen all data of its period: it "
        "counts the rows that arrived since then.",
    },
    "gaps": _list(
        _pair(_TIME, "Begin and end."),
        "Periods in which the configuration did not contain the query, whose rows it has not seen.",
    ),
    "at_most_beyond": {**_INTEGER, "description": "Of MIN and MAX: how many values at most lie beyond the next edge."},
    "description": {
        **_TEXT,
        "description": "What is known in words, where it is not a number with an interval around it.",
    },
}

_NAMES = {
    "key": {**_TEXT, "description": "Of names that nobody listed: what they are names of."},
    "items": _list(
        _object(
            {
                "name": {"type": ["string", "integer"]},
                "count": _NUMBER,
                "standard_error": _NUMBER,
                "interval": _pair(_NUMBER),
            }
        ),
        "The names that the query shows, in its order. All intervals hold together, with 95%; `value` is the number of "
        "events with any name.",
    ),
    "listing_threshold": {
        **_NUMBER,
        "description": "Names with at least this many events are listed with probability 95%.",
    },
}
_DOUBT = {
    "too_uncertain": {**_FLAG, "description": "Whether the interval reaches further than the answer itself."},
    "help": {**_TEXT, "description": "What would make the answer better, where it is too uncertain."},
}

_SOMETIMES = "group window end since gaps at_most_beyond description"  # fields of a release
_WINDOWS = {
    "answer": {**_TEXT, "description": "Of RETENTION: which of its answers, such as back_2."},
    "lag": {**_INTEGER, "description": "Of RETENTION: how many windows lie between the cohort and this one."},
    "cohort": _pair(_TIME, "Of RETENTION: begin and end of the window whose users came again."),
    "sketch": {**_TEXT, "description": "Of SKETCH: name of the published cells."},
}

_CLAIM = {
    "epsilon": _EPSILON,
    "delta": _NUMBER,
    "unit": _TEXT,
    "adjacency": _TEXT,
    "parts": {"type": "object", "additionalProperties": _EPSILON},
    "intrusions": _object(
        {
            "unannounced": _MANY,
            "announced": _MANY,
            "per_phase": _FLAG,
            "machines": _INTEGER,
            "together": _INTEGER,
            "freezes": {
                **_FLAG,
                "description": "True: an announced copy is covered only if no row was applied between the copy and the "
                "refresh.",
            },
        },
        optional=("machines", "together", "freezes"),
    ),
    "inputs": {"enum": ["adaptive", "fixed"], "description": "Whether rows may depend on earlier answers."},
    "locations": _list(_TEXT, "Which copies are covered: memory, disk."),
    "releases": _MANY,
    "horizon": _maybe("integer"),
    "public": _list(_TEXT, "Facts that are not protected."),
    "note": _TEXT,
    "window": _WINDOW,
    "event_epsilon": {**_maybe("number"), "description": "What one event loses, where that is less."},
    "assumption": {**_TEXT, "description": "What the promise depends on, where it depends on anything."},
}

_QUERY = {
    "name": _TEXT,
    "sql": _TEXT,
    "algorithm": _TEXT,
    "why": {**_TEXT, "description": "Why this algorithm was chosen."},
    "claim": _ref("Claim"),
    "state_bytes": _INTEGER,
    "series": _list(_TEXT, "One per group, and in it one per output; the query's name if there are none."),
    "outputs": _list(
        _object(
            {
                "name": _TEXT,
                "aggregate": _TEXT,
                "additive": {**_FLAG, "description": "Whether answers about two periods add up, as counts do."},
            }
        ),
        "The answers of each group.",
    ),
    "releases": _object(
        {
            "planned": {**_maybe("integer"), "description": "Per series; null for windows, which never end."},
            "made": _INTEGER,
        }
    ),
    "every": {**_maybe("number"), "description": "Seconds between releases, if by schedule."},
    "window": {**_maybe("number"), "description": "Seconds of a window, if there are any (2766600: a calendar month)."},
    "on_demand": {**_FLAG, "description": "Whether POST .../release answers it."},
    "next_answer": {
        **_maybe("string"),
        "description": "When the open period ends, and its answer comes. Null if answers are not scheduled, or follow "
        "the times of rows.",
    },
    "finished": {**_FLAG, "description": "Whether all releases were made."},
    "refreshable": {**_FLAG, "description": "Whether its state can be refreshed after an announced intrusion."},
}

_KIND = {"unit": _TEXT, "adjacency": _TEXT}

SCHEMAS: dict[str, Any] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "code": {**_TEXT, "description": "One of the documented codes."},
                    "message": {**_TEXT, "description": "What to do; never holds a value of a row."},
                }
            )
        }
    ),
    "Applied": _object(
        {
            "new": {**_FLAG, "description": "False if this batch was applied before."},
            "rows": {**_INTEGER, "description": "Rows read, bad ones included."},
            "skipped": _ref("RowNumbers"),
            "late": _ref("RowNumbers"),
        },
        text="The outcome of a batch, which only its sender sees.",
    ),
    "Producer": _object(
        {
            "name": _TEXT,
            "id": {
                **_TEXT,
                "description": "What batches carry as Panstream-Producer; a new id each time the producer is opened.",
            },
            "last": {**_INTEGER, "description": "Number of the last batch that was counted; 0 before the first."},
            "in_flight": {**_INTEGER, "description": "How many batches may be sent before one is answered."},
        },
        text="A producer that is open under the token that asks.",
    ),
    "Producers": _object({"producers": _list(_ref("Producer"))}),
    "RowNumbers": _object({"count": _INTEGER, "rows": _list(_INTEGER, "The first 1,000 row numbers, counted from 1.")}),
    "Claim": _object(_CLAIM, optional=("assumption",), text="What is promised, to whom, against whom."),
    "Query": _object(_QUERY),
    "Queries": _object(
        {
            "stream": _object(
                {
                    "name": _TEXT,
                    "columns": {"type": "object", "additionalProperties": _TEXT, "description": "Declared types."},
                    "user": _maybe("string"),
                    "time": _maybe("string"),
                    "time_zone": {**_TEXT, "description": "Of windows that are units of the calendar."},
                    "durability": {"enum": ["batch", "interval", "none"]},
                    "on_disk": _FLAG,
                }
            ),
            "web": {
                **_object({"site": _TEXT, "source": {"enum": ["beacon", "log"]}}),
                "type": ["object", "null"],
                "description": "The site whose visitors the stream is about, if the configuration names one.",
            },
            "queries": _list(_ref("Query")),
        }
    ),
    "Release": _object(
        {**_RELEASE, **_DOUBT, **_NAMES, **_WINDOWS},
        optional=(*_SOMETIMES.split(), *_DOUBT, *_NAMES, *_WINDOWS),
    ),
    "Releases": _object({"releases": _list(_ref("Release"))}),
    "NameCounts": _object(
        {
            "counts": _list(
                _object(
                    {
                        **{field: _RELEASE[field] for field in ("query", "number", "time", "window")},
                        "key": _NAMES["key"],
                        "name": {**_TEXT, "description": "Ends in … if the name was cut off at max_item_bytes."},
                        **{
                            field: _RELEASE[field]
                            for field in ("value", "unclipped", "standard_error", "interval", "level")
                        },
                    },
                    optional=("window",),
                )
            )
        }
    ),
    "LedgerState": _object(
        {
            "totals": _list(
                _object(
                    {
                        **_KIND,
                        "window": _WINDOW,
                        "protects": {**_TEXT, "description": "The unit in words: `user-window of 1 day`."},
                        "epsilon": {**_EPSILON, "description": "What one unit loses to each query, added up."},
                        "delta": _NUMBER,
                        "limit": {**_maybe("number"), "description": "The declared budget; null if there is none."},
                        "bounded": {**_FLAG, "description": "False where nothing bounds the total."},
                        "reason": {**_TEXT, "description": "Why it is not bounded; empty if it is."},
                        "parts": _list(_object({"name": _TEXT, "epsilon": _EPSILON}), "Its shares, by charge."),
                    }
                )
            ),
            "person": _ref("PersonTotal"),
            "entries": _list(
                _object({"name": _TEXT, **_KIND, "window": _WINDOW, "epsilon": _EPSILON, "delta": _NUMBER})
            ),
            "intrusions": _list(_ref("Intrusion"), "The intrusions that were announced."),
        }
    ),
    "PersonTotal": _object(
        {
            "period": {**_NUMBER, "description": "Seconds of the period."},
            "epsilon": {
                **_EPSILON,
                "description": "What one person can lose in any period to all queries and one intrusion.",
            },
            "delta": _NUMBER,
            "bounded_total": {
                **_object({"epsilon": _NUMBER, "delta": _NUMBER, "loss": _NUMBER, "chance": _NUMBER}),
                "description": "The total of the queries that have a bound. Odds of a guess change by more than "
                "e^loss with at most the given chance.",
            },
            "limit": {**_maybe("number"), "description": "The declared budget; null if there is none."},
            "bounded": {**_FLAG, "description": "False where nothing bounds the total."},
            "reason": {**_TEXT, "description": "Why it is not bounded; empty if it is."},
            "shares": _list(
                _object(
                    {
                        "name": _TEXT,
                        "epsilon": _EPSILON,
                        "delta": _NUMBER,
                        "windows": {**_INTEGER, "description": "States that can hold rows of one period."},
                        "open": {**_INTEGER, "description": "Of these, how many one copy can show."},
                        "opening": {**_INTEGER, "description": "How many more it can show before a row came."},
                        "retained": {**_INTEGER, "description": "How many past windows it shows besides."},
                        "answers": {**_EPSILON_OR_NULL, "description": "Loss to the answers of one window."},
                        "joint": {**_EPSILON_OR_NULL, "description": "Loss to a copy of it and its answers."},
                        "contributions": {**_maybe("integer"), "description": "Most rows of one person in a window."},
                        "bounded_by": {**_maybe("string"), "description": "What bounds the person's rows."},
                        "reason": {**_TEXT, "description": "Why there is no bound; empty if there is one."},
                    }
                ),
                "One per query.",
            ),
        }
    ),
    "Announcement": _object(
        {
            "confirm": {**_FLAG, "description": "True to do it."},
            "copied_at": {
                "type": ["string", "null"],
                "format": "date-time",
                "description": "When the state was copied, to the second, with a time zone. Null: not known.",
            },
            "just_now": {
                **_FLAG,
                "description": "True if the state was copied just now and no row has been applied since. Instead of "
                "copied_at.",
            },
        },
        optional=("copied_at", "just_now"),
    ),
    "Intrusion": _object(
        {
            "announced": _TIME,
            "copied": {
                **_maybe("string"),
                "description": 'When the state was copied: a time, "just now", or null if it was not known.',
            },
            "verdicts": _list(
                _object({"query": _TEXT, "window": _maybe("string"), "covered": _COVERED, "verdict": _TEXT}),
                "Whether the copy is covered, for every question and window.",
            ),
        }
    ),
    "Intrusions": _object(
        {
            "done": {**_FLAG, "description": "Whether this request announced one."},
            "states": _list(
                _object(
                    {
                        "query": _TEXT,
                        "window": {
                            **_maybe("string"),
                            "description": "When the state's window begins; null without windows.",
                        },
                        "group": {**_maybe("string"), "description": "Null without groups."},
                        "refreshed": _FLAG,
                        "covered": _COVERED,
                        "verdict": {
                            **_TEXT,
                            "description": '"covered", or "not covered:" with the reason and what it means.',
                        },
                    }
                ),
                "The outcome for every state, if this request announced an intrusion.",
            ),
            "announced": _list(_ref("Intrusion")),
            "price": _list(
                _object(
                    {
                        "query": _TEXT,
                        "refreshable": _FLAG,
                        "epsilon": {
                            **_maybe("number"),
                            "description": "What a refresh adds; null: not offered, since no epsilon would cover it.",
                        },
                        "text": _TEXT,
                    }
                )
            ),
        }
    ),
    "Health": HEALTH,
}
