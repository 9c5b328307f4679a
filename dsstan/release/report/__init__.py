"""The steward's report and the public fact sheet, as HTML."""

from dsstan.release.report.page import factsheet, write_report

__all__ = ["factsheet", "write_report"]
