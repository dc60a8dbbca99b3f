"""Bridges to frameworks and their files; what a module here needs is imported by nothing else."""


def __dir__() -> list[str]:
    return ["jax", "torch"]
