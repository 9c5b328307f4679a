"""Tables in text files, read and written to the letter.

What a column means is decided elsewhere.
"""
