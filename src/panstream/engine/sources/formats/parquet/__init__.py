"""Parquet files: pyarrow decodes them (``file``) after ``footer`` and ``page_limits`` have checked their metadata."""
