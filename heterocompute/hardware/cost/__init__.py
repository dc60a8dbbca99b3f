"""What a network costs on a chip: time, traffic, memory, energy of a step."""
