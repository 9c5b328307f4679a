"""Correlation functions, the likelihood surface, and each covariance that a model may have.

Arrays and spatial models come in; nothing here knows of fits, copies or risks.
"""
