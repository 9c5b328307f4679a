"""Two pages of a release: the data steward's report, and a fact sheet for the public.

Both are one file each, with no request to anywhere. jinja2 and great_tables are imported
when a page is made, which keeps ``import dsstan`` quick.
"""

from __future__ import annotations

from dsstan.report.page import factsheet, write_report

__all__ = ["factsheet", "write_report"]
