"""What servers of the OpenAI chat API do differently, as data: `data/profiles.json`, one entry for each.

The facts are those of the servers' public documentation and sources in autumn 2026. A server that no profile fits can
be given one of its own: `attrs.evolve(profile("vllm"), think_tags=False)`.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.providers.endpoint import Endpoint, host_of
from yiemagent.record import Record

__all__ = ["ByModel", "Profile", "profile", "profile_for", "profile_names"]

_FILE = pathlib.Path(__file__).parent / "data" / "profiles.json"
COMPATIBLE = "compatible"

ByModel: TypeAlias = tuple[tuple[str, FrozenDict], ...]


def _strings(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _types(given: Iterable[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(given)


def _by_model(given: Iterable[Any]) -> ByModel:
    return tuple((pattern, freeze_json(values)) for pattern, values in given)


def _efforts(given: Iterable[Any] | None) -> ByModel | None:
    return None if given is None else _by_model(given)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Profile(Record):
    """How one server speaks the OpenAI chat API.

    Args:
        name: of the profile, in model strings.
        title: how people call it.
        provider: the name in messages, and that `get_api_key` is asked with; None: the profile's.
        base_url: where it is by default; "" where that must be given.
        base_url_variables: environment variables that may name another place.
        key_variables: those that may hold the key.
        needs_key: whether it can't be asked without a key.
        example: a model's name, for texts.
        max_tokens_field: the field for the answer's limit.
        system_role: the role of the instructions.
        efforts: reasoning levels by model: pairs of a pattern that is searched for in the model's name and the words
            for the levels; the first pair that fits counts. A level without a word is not sent. None: as OpenAI's
            models know them.
        effort_field: where the level's word goes; a dot leads into an object.
        budget_field: where the tokens go that a level may think; None: not sent.
        thinking_switch: whether `thinking: {"type": "enabled"}` or `"disabled"` is sent with a level, and a forced tool
            needs the latter.
        reasoning_field: where thinking goes back to the model that had it: "reasoning_content", "reasoning",
            "reasoning_details" (whole, as it came), "content" (as a part), "same" (where it came from), None: nowhere.
        reasoning_required: whether each answer that is sent back must have that field, if only an empty one.
        think_tags: whether an answer's thinking may come in its text, between <think> and </think>.
        signals_end: whether a stream's end is told, by a finish reason or "[DONE]"; without it an answer counts as cut.
        usage_field: the field that asks for the usage of a stream, in `stream_options`; None: it comes by itself.
        tool_choices: those of "auto", "none", "required" and "named" that it heeds. "none" and "named" are put in other
            words where they are not among them: no tool, or only that one, is offered.
        schema_output: whether it takes a JSON schema for its answer: "always", "without_tools", or "never".
        call_id: what ids of tool calls must match; max_call_id: their length at most, None: any.
        checks_own_ids: whether ids must match also in the model's own answers, where one may be ours since the server
            gave none.
        reads_images: whether images are sent; image_types: the MIME types of those that are, None: any.
        bridge: what stands as an answer between a tool result and a user message; None: nothing need stand there.
        cache_key_field: where `StreamOptions.session_id` goes, so that a conversation finds its cache; None: nowhere.
        max_cache_key: its length at most; a longer one is sent as a digest.
        idle_timeout_s: how long it may be silent in a stream, unless the provider is told otherwise; long where models
            think, load or read a long prompt without a word. None: for ever.
        cache_fields: further fields by model, as `efforts`, and by `StreamOptions.cache`.
    """

    name: str
    title: str = ""
    provider: str | None = None
    base_url: str = ""
    base_url_variables: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    key_variables: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    needs_key: bool = False
    example: str = "qwen3"
    max_tokens_field: str = "max_tokens"
    system_role: str = "system"
    efforts: ByModel | None = attrs.field(default=(), converter=_efforts)
    effort_field: str = "reasoning_effort"
    budget_field: str | None = None
    thinking_switch: bool = False
    reasoning_field: str | None = "same"
    reasoning_required: bool = False
    think_tags: bool = True
    signals_end: bool = True
    usage_field: str | None = "include_usage"
    tool_choices: tuple[str, ...] = attrs.field(
        default=("auto", "none", "required", "named"), converter=_strings
    )
    schema_output: Literal["always", "without_tools", "never"] = "without_tools"
    call_id: str = "[a-zA-Z0-9_-]+"
    max_call_id: int | None = 64
    checks_own_ids: bool = False
    reads_images: bool = True
    image_types: frozenset[str] | None = attrs.field(default=None, converter=_types)
    bridge: str | None = None
    cache_key_field: str | None = None
    max_cache_key: int = 64
    idle_timeout_s: float | None = 600.0
    cache_fields: ByModel = attrs.field(default=(), converter=_by_model)

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is, and where its key comes from."""
        return Endpoint(
            self.provider or self.name,
            self.base_url,
            self.key_variables,
            self.base_url_variables,
            self.needs_key,
        )


def by_model(entries: ByModel, model: str) -> Mapping[str, Any]:
    """Give the values of the first entry whose pattern is found in the model's name; none fits: an empty mapping."""
    fitting = (values for pattern, values in entries if re.search(pattern, model))
    return next(fitting, FrozenDict())


@functools.cache
def _profiles() -> Mapping[str, Profile]:
    entries = json.loads(_FILE.read_text("utf-8"))
    return {name: Profile(name=name, **fields) for name, fields in entries.items()}


def profile_names() -> tuple[str, ...]:
    """Give the names of all profiles."""
    return tuple(_profiles())


def profile(name: str) -> Profile:
    """Give a profile.

    Raises:
        ConfigurationError: there is none of this name.
    """
    known = _profiles().get(name)
    if known is None:
        names = ", ".join(_profiles())
        raise ConfigurationError(f"no profile {name!r} is known; the profiles are: {names}")
    return known


def profile_for(base_url: str) -> Profile:
    """Give the profile of the provider whose own host a base URL names, else "compatible".

    A port of this machine tells nothing about who listens there.

    Raises:
        ConfigurationError: the base URL is none.
    """
    host = host_of(base_url)
    for known in _profiles().values():
        own = urlsplit(known.base_url).hostname
        if own and own == host and own != "127.0.0.1":
            return known
    return profile(COMPATIBLE)
