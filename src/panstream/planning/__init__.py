"""Errors, sample sizes and budgets before any data is seen: functions in inverse pairs."""
