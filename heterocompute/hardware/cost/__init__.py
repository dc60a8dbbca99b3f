"""The cost of a network on a chip: time, traffic, memory, energy of a step."""
