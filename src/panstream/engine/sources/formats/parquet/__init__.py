"""Parquet files: ``file`` has pyarrow read them, once ``footer`` and ``page_limits`` have checked what they claim."""
