"""What every other room stands on: errors, seeds, progress, private files, executors.

Nothing here knows of tables, models or releases.
"""
