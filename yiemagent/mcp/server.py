"""A server over a `ToolStore`: what each method gives, whatever the transport and the era.

Every tool call goes through the pipeline that agents use (`server_tools`). Resources, prompts and completions are
functions of the user, too, and run on threads that may hang without holding up anything else.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Self

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, ToolError, error_text
from yiemagent.hooks import Hooks
from yiemagent.mcp import changes
from yiemagent.mcp.caller import InputNeeded, McpCaller, Reach, caller_of
from yiemagent.mcp.changes import Changes
from yiemagent.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from yiemagent.mcp.offers import Prompt, Resource, ResourceTemplate, prompt_result, read_result
from yiemagent.mcp.request_state import StateSeal
from yiemagent.mcp.server_protocol import Call, RpcFailure, ServerFacts
from yiemagent.mcp.server_results import page, tool_definition
from yiemagent.mcp.server_tools import ToolRunner
from yiemagent.pool import DaemonPool
from yiemagent.registry import ToolStore

__all__ = ["McpServer"]

logger = logging.getLogger("yiemagent.mcp.server")

_MAX_COMPLETIONS = 100
_NOT_FOUND_HANDSHAKE = -32002  # what the handshake versions say of a resource that is not there


class McpServer:
    """Serves the tools of a store, and resources and prompts beside them; best used in a `with` block.

    It does nothing by itself: hand it to `serve_stdio`, or to `HttpServing`. Tools may come and go while it serves.

    Args:
        store: the tools.
        name: the server's name, for people.
        version: its version.
        title, instructions: its name to be shown, and how to use it, for models; or None.
        resources: `Resource`s and `ResourceTemplate`s.
        prompts: `Prompt`s.
        hooks: of them `before_tool_call` and `after_tool_call` are called, as in an agent; or None.
        max_parallel_tools: how many calls of tools run at once; more wait.
        abort_grace_s: how long a cancelled tool is waited for.
        request_timeout_s: seconds that reading a resource, rendering a prompt or a completion may take; None: no limit.
            Tools have limits of their own.
        page_size: entries of one page of a list.
        list_ttl_ms: how long clients of the stateless era may keep a list without asking again.
        state_key: what the state of a call that asks its client is sealed with; servers that share their work share it.
            None: a key of its own.

    Raises:
        ConfigurationError: two resources, templates or prompts have one name, or one of them is something else.
    """

    def __init__(
        self,
        store: ToolStore,
        *,
        name: str = "yiemagent",
        version: str = "1",
        title: str | None = None,
        instructions: str | None = None,
        resources: Iterable[Resource | ResourceTemplate] = (),
        prompts: Iterable[Prompt] = (),
        hooks: Hooks | None = None,
        max_parallel_tools: int = 64,
        abort_grace_s: float = 1.0,
        request_timeout_s: float | None = 120.0,
        page_size: int = 500,
        list_ttl_ms: int = 0,
        state_key: bytes | None = None,
    ) -> None:
        self.store = store
        self.info = {"name": name, "version": version} | ({"title": title} if title else {})
        self.changes = Changes()
        """Who is told of changes."""
        self.closing = AbortSignal()
        """Set by `close`; the parent of every call's signal."""
        self.pool = DaemonPool("yiem-mcp")
        """The threads that calls run on."""
        self._instructions = instructions
        self._timeout_s = request_timeout_s
        self._page_size = page_size
        self._list_ttl_ms = list_ttl_ms
        self._seal = StateSeal(state_key)
        # Guards the three tables; no function of theirs is called while it is held.
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, ResourceTemplate] = {}
        self._prompts: dict[str, Prompt] = {}
        self._tools = ToolRunner(
            store,
            hooks or Hooks(),
            self.pool,
            max_parallel_tools=max_parallel_tools,
            abort_grace_s=abort_grace_s,
        )
        for resource in resources:
            self.add_resource(resource)
        for prompt in prompts:
            self.add_prompt(prompt)
        self._unwatch = store.on_change(lambda: self.changes.tell(changes.TOOLS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every call and subscription; calling it twice does nothing more."""
        self._unwatch()
        for listener in self.changes.listeners():
            listener.end()
        self.changes.close()
        self.closing.abort("the server is closing")
        self.pool.shutdown(wait=False)

    # -- what it offers ------------------------------------------------------------------------------------------

    @property
    def facts(self) -> ServerFacts:
        """What it says of itself at present."""
        capabilities: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
        with self._lock:
            if self._resources or self._templates:
                capabilities["resources"] = {"subscribe": True, "listChanged": True}
            if self._prompts:
                capabilities["prompts"] = {"listChanged": True}
            completes = any(template.complete for template in self._templates.values()) or any(
                argument.complete for p in self._prompts.values() for argument in p.arguments
            )
        if completes:
            capabilities["completions"] = {}
        return ServerFacts(self.info, capabilities, self._instructions, self._list_ttl_ms)

    def add_resource(self, resource: Resource | ResourceTemplate) -> None:
        """Offer a resource, or a family of them, from now on.

        Raises:
            ConfigurationError: its URI is taken.
        """
        if isinstance(resource, Resource):
            self._add(self._resources, resource.uri, resource)
        elif isinstance(resource, ResourceTemplate):
            self._add(self._templates, resource.uri_template, resource)
        else:
            raise ConfigurationError(f"{resource!r} is no Resource and no ResourceTemplate")
        self.changes.tell(changes.RESOURCES)

    def remove_resource(self, uri: str) -> None:
        """Offer a resource, or a family, no longer; `uri` is its URI or its template.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            table: dict[str, Any] = self._resources if uri in self._resources else self._templates
            del table[uri]
        self.changes.tell(changes.RESOURCES)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to a resource that it changed."""
        self.changes.tell(changes.RESOURCE, uri)

    def add_prompt(self, prompt: Prompt) -> None:
        """Offer a prompt from now on.

        Raises:
            ConfigurationError: its name is taken.
        """
        if not isinstance(prompt, Prompt):
            raise ConfigurationError(f"{prompt!r} is no Prompt")
        self._add(self._prompts, prompt.name, prompt)
        self.changes.tell(changes.PROMPTS)

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            del self._prompts[name]
        self.changes.tell(changes.PROMPTS)

    def _add(self, table: dict[str, Any], key: str, offer: Any) -> None:
        with self._lock:
            if key in table:
                raise ConfigurationError(f"{key!r} is offered already; remove that first")
            table[key] = offer

    # -- what a call gives ---------------------------------------------------------------------------------------

    def handle(self, call: Call, reach: Reach) -> dict[str, Any]:
        """Do what a call asks for, and give its result; blocks until it is there.

        Args:
            call: any but those that the protocol answers by itself.
            reach: how its client is reached.

        Raises:
            RpcFailure: the error that answers the call.
            AbortedError: nobody waits for the answer any more.
        """
        caller = McpCaller(call, reach, self._answers(call, reach.principal))
        token = caller_of.set(caller)
        try:
            result = self._result(call, caller)
        except (AbortedError, RpcFailure):
            raise
        except InputNeeded:
            result = {}
        except ToolError as error:  # in what the user's functions raise to say what is wrong
            raise caller.failure or RpcFailure(INTERNAL_ERROR, str(error)) from error
        except Exception as error:  # a resource's or a prompt's function may raise anything
            logger.warning("%s failed", call.method, exc_info=True)
            raise RpcFailure(INTERNAL_ERROR, error_text(error)) from error
        finally:
            caller_of.reset(token)
            caller.end()
        return self._input_required(call, caller) if caller.needed else result

    def _result(self, call: Call, caller: McpCaller) -> dict[str, Any]:
        if call.method == "tools/call":
            return self._tools.run(call, caller, caller.signal)
        if call.method == "tools/list":
            tools = self.store.snapshot().items()
            told = [(name, tool_definition(tool, call.version)) for name, tool in tools]
            return self._page(call, "tools", told)
        if call.method in _LISTS:
            key, table = _LISTS[call.method]
            return self._page(call, key, self._definitions(getattr(self, table)))
        work = _WORK.get(call.method)
        if work is None:
            raise RpcFailure(METHOD_NOT_FOUND, f"there is no method {call.method!r} here")
        result: dict[str, Any] = work(self, call, caller.signal)
        return result

    def _definitions(self, table: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        with self._lock:
            return [(key, offer.definition()) for key, offer in table.items()]

    def _page(self, call: Call, key: str, told: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        shown, following = page(told, call.params.get("cursor"), self._page_size)
        return {key: shown} if following is None else {key: shown, "nextCursor": following}

    def _read(self, call: Call, signal: AbortSignal) -> dict[str, Any]:
        uri = _text(call.params, "uri")
        with self._lock:
            resource, templates = self._resources.get(uri), tuple(self._templates.values())
        if resource is not None:
            given = self._within(signal, resource.read)
            return read_result(uri, given, resource.mime_type)
        for template in templates:
            places = template.match(uri)
            if places is not None:
                given = self._within(signal, functools.partial(template.read, **places))
                if given is not None:
                    return read_result(uri, given, template.mime_type)
        code = INVALID_PARAMS if call.stateless else _NOT_FOUND_HANDSHAKE
        raise RpcFailure(code, f"there is no resource {uri!r}", {"uri": uri})

    def _prompt(self, call: Call, signal: AbortSignal) -> dict[str, Any]:
        name, arguments = _text(call.params, "name"), call.params.get("arguments") or {}
        prompt = self._prompts.get(name)
        if prompt is None:
            raise RpcFailure(INVALID_PARAMS, f"there is no prompt {name!r}")
        if not isinstance(arguments, dict) or not all(map(_is_text, arguments.values())):
            raise RpcFailure(INVALID_PARAMS, "the arguments of a prompt are texts by name")
        known = {argument.name for argument in prompt.arguments}
        missing = [a.name for a in prompt.arguments if a.required and a.name not in arguments]
        if missing:
            raise RpcFailure(INVALID_PARAMS, f"the prompt {name!r} needs: {', '.join(missing)}")
        fitting = {key: value for key, value in arguments.items() if key in known}
        given = self._within(signal, functools.partial(prompt.render, **fitting))
        return prompt_result(given, prompt.description)

    def _completion(self, call: Call, signal: AbortSignal) -> dict[str, Any]:
        wanted, context = call.params.get("argument"), call.params.get("context")
        if not isinstance(wanted, dict):
            raise RpcFailure(INVALID_PARAMS, "completion/complete must name an argument")
        name, value = _text(wanted, "name"), _text(wanted, "value")
        others = context.get("arguments") if isinstance(context, dict) else None
        complete = self._completer(call.params.get("ref"), name)
        values: list[str] = []
        if complete is not None:
            filled = others if isinstance(others, dict) else {}
            values = [str(v) for v in self._within(signal, lambda: list(complete(value, filled)))]
        shown = values[:_MAX_COMPLETIONS]
        more = len(values) > len(shown)
        return {"completion": {"values": shown, "total": len(values), "hasMore": more}}

    def _completer(self, ref: Any, name: str) -> Callable[..., Iterable[str]] | None:
        if not isinstance(ref, dict):
            raise RpcFailure(INVALID_PARAMS, "completion/complete must name what it completes")
        if ref.get("type") == "ref/prompt":
            prompt = self._prompts.get(_text(ref, "name"))
            if prompt is not None:
                found = [a.complete for a in prompt.arguments if a.name == name]
                return found[0] if found else None
        if ref.get("type") == "ref/resource":
            template = self._templates.get(_text(ref, "uri"))
            if template is not None or ref["uri"] in self._resources:
                return None if template is None else template.complete.get(name)
        raise RpcFailure(INVALID_PARAMS, f"there is nothing to complete for {json.dumps(ref)}")

    def _within(self, signal: AbortSignal, work: Callable[[], Any]) -> Any:
        """Do work of the user's within the time limit; a thread that hangs is left behind.

        Raises:
            AbortedError: the call was cancelled.
            RpcFailure: the time was up.
        """
        settled: SimpleQueue[tuple[Any, BaseException | None] | None] = SimpleQueue()

        def attempt() -> None:
            try:
                settled.put((work(), None))
            except BaseException as error:  # whatever it is, it is raised on the thread that waits
                settled.put((None, error))

        self.pool.start(contextvars.copy_context().run, attempt)
        with _waking(signal, settled):
            try:
                came = settled.get(timeout=self._timeout_s)
            except Empty:
                text = f"it took longer than {self._timeout_s:g} s"
                raise RpcFailure(INTERNAL_ERROR, text) from None
        if came is None:
            raise AbortedError(signal.reason or "aborted")
        given, error = came
        if error is None:
            return given
        if isinstance(error, Exception):
            raise error
        raise RpcFailure(INTERNAL_ERROR, error_text(error)) from error

    # -- rounds of questions -------------------------------------------------------------------------------------

    def _answers(self, call: Call, principal: str | None) -> dict[str, Any]:
        """Give what the client answered so far, in this round and the ones before.

        Raises:
            RpcFailure: what it brings is no set of answers, or a state that it was not given for this.
        """
        params = call.params
        if not call.stateless:
            return {}
        answers: dict[str, Any] = {}
        if "requestState" in params:
            answers |= self._seal.open(
                params["requestState"], about=_about(call), principal=principal
            )
        if "inputResponses" in params:
            brought = params["inputResponses"]
            if not isinstance(brought, dict) or not all(
                isinstance(answer, dict) for answer in brought.values()
            ):
                raise RpcFailure(INVALID_PARAMS, "inputResponses must be objects by name")
            answers |= brought
        return answers

    def _input_required(self, call: Call, caller: McpCaller) -> dict[str, Any]:
        state = self._seal.seal(caller.answered, about=_about(call), principal=caller.principal)
        return {
            "resultType": "input_required",
            "inputRequests": caller.needed,
            "requestState": state,
        }


_LISTS = {
    "resources/list": ("resources", "_resources"),
    "resources/templates/list": ("resourceTemplates", "_templates"),
    "prompts/list": ("prompts", "_prompts"),
}
_WORK: dict[str, Callable[[McpServer, Call, AbortSignal], dict[str, Any]]] = {
    "resources/read": McpServer._read,
    "prompts/get": McpServer._prompt,
    "completion/complete": McpServer._completion,
}


def _about(call: Call) -> str:
    """Give what tells a request from every other, whenever it is made."""
    facts = [call.params.get(key) for key in ("name", "uri", "arguments")]
    text = json.dumps([call.method, facts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _waking(signal: AbortSignal, waiting: SimpleQueue[Any]) -> Iterator[None]:
    """Have an abort put None into what a block waits for."""
    forget = signal.add_callback(lambda: waiting.put(None))
    try:
        yield
    finally:
        forget()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise RpcFailure(INVALID_PARAMS, f"{key!r} must be given as text")
    return value
