"""The data sets of the contest with peers, their halves, and what its records say."""
