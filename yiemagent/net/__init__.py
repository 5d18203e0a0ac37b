"""The wing that talks to the network: server-sent events, HTTP that ends on abort, retries."""

__all__: list[str] = []
