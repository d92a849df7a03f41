"""Figures as functions of predictions: sketches, arrays and plain dictionaries, never of our models."""
