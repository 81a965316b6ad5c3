"""From a table to a model and what is known about it."""
