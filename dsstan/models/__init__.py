"""The models that section 6 of the paper leaves for later, each with its fit.

A fit of any of them is a :class:`dsstan.Fit` and goes the common way: ``synthesise``,
``disclosure``, ``utility``, ``write``.
"""
