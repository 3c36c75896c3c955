"""Errors, sample sizes and budgets before any data is seen: functions in inverse pairs.

``density``, ``distinct``, ``turnstile`` and ``moments`` plan what panstream ships, from its exact laws;
``density_published`` and ``continual`` have the papers' own bounds. ``text`` prints the plans. Nothing here draws
noise or reads rows.
"""
