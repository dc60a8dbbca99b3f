"""Sentences of errors and warnings that the tests of report expect, as patterns."""

NO_COLUMN_OF_NUMBERS_F1 = "no column of numbers 'f1'"
