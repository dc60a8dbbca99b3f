"""Sentences of errors and warnings that the tests of emulate expect, as patterns."""

DILATION_IS_0_WANTED_1 = "dilation is 0, wanted 1 or more"
GROUPS_IS_ALL = "groups is 'all'"
WITH_GROUPS_3 = "with groups 3"
