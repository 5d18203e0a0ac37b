"""What a provider tells while no answer comes: it asks again, it waits with others, another model takes over."""

from __future__ import annotations

from yiemagent.errors import LlmError
from yiemagent.streaming import StreamNoticeEvent

__all__ = ["fallback_notice", "gate_notice", "retry_notice"]


def retry_notice(failure: LlmError, attempt: int, delay_ms: int) -> StreamNoticeEvent:
    """Tell that a request is asked again, as number `attempt` of the retries, after a wait."""
    return StreamNoticeEvent(
        "retry_scheduled",
        f"retry {attempt} in {delay_ms / 1000:.3g} s: {failure}",
        {
            "attempt": attempt,
            "delay_ms": delay_ms,
            "reason": str(failure),
            "status": failure.status,
        },
    )


def gate_notice(host: str, delay_ms: int) -> StreamNoticeEvent:
    """Tell that a request waits because its server asked another one with the same key to."""
    return StreamNoticeEvent(
        "rate_gate",
        f"waiting {delay_ms / 1000:.3g} s: {host} asked for that after another request with this key",
        {"delay_ms": delay_ms, "host": host},
    )


def fallback_notice(
    from_model: str, to_model: str, reason: str, status: int | None
) -> StreamNoticeEvent:
    """Tell that a model failed and another one is asked in its place."""
    return StreamNoticeEvent(
        "fallback",
        f"{from_model} failed: {reason}; asking {to_model}",
        {"from_model": from_model, "to_model": to_model, "reason": reason, "status": status},
    )
