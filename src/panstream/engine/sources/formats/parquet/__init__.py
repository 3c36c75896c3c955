"""Parquet files: pyarrow decodes them (``file``) after ``page_limits`` has checked their page headers."""
