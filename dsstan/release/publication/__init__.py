"""What happens when a written release goes out: the check, the copy, the ledger of all that did.

How a release is written lives one floor up.
"""
