"""The `yiemagent` command: the roof of the house."""

__all__: list[str] = []
