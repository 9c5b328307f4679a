"""The steward's report and the public fact sheet, as HTML."""

from dsstan.release.report.page import factsheet, write_report
from dsstan.release.report.public_view import public_view

__all__ = ["factsheet", "public_view", "write_report"]
