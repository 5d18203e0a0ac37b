"""Sessions: conversations that survive whatever happens to the process that has them."""

__all__: list[str] = []
