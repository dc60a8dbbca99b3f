"""Bridges to frameworks and their files; nothing else imports these packages."""


def __dir__() -> list[str]:
    return ["jax", "torch"]
