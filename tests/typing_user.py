"""The public API as a user writes it; read by `mypy --strict` in tests/run.sh, and run by tests/docs/test_docs.py.

What a user has to write for the type checker is part of the product: nothing here may need a cast or an ignore.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from typing import Any

from yiemagent import (
    AbortSignal,
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentEndEvent,
    AgentLoopConfig,
    AgentState,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    Event,
    EventStream,
    LlmUsage,
    MessageUpdateEvent,
    NextTurn,
    Receipt,
    ToolExecEndEvent,
    ToolStore,
    TurnContext,
    UserMessage,
    YiemAgent,
    YiemAgentError,
    abort_agent,
    agent_loop,
    ask,
    continue_agent,
    follow_up,
    get_tools,
    load_tools,
    read_output,
    register_tool,
    resume_agent,
    run_agent,
    run_agent_loop,
    steer,
    stop_agent,
    take_response,
    tool,
)
from yiemagent.providers.prices import Price, set_price
from yiemagent.sessions import Session
from yiemagent.streaming import TextDeltaEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, check_event_order


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(
    name="wait",
    description="Wait a little.",
    timeout_s=5,
    parallel_tool_execute=True,
    examples=[("hold on", {})],
    prepare_arguments=dict,
    validate_required_args=lambda args: "takes none" if args else None,
)
def wait_a_little(signal: AbortSignal) -> str:
    """Wait."""
    return "aborted" if signal.wait(0.001) else "done"


def execute_tool(
    tool_call_id: str, args: dict[str, Any], signal: AbortSignal, on_partial_result: Any
) -> AgentToolResult:
    """Say a text backwards."""
    signal.raise_if_aborted()
    on_partial_result({"id": tool_call_id})
    return AgentToolResult(str(args["text"])[::-1], details={"length": len(args["text"])})


REVERSE = AgentTool(
    name="reverse",
    description="Reverse a text.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    execute=execute_tool,
    annotations={"readOnlyHint": True},
    examples=[("Reverse 'abc'.", {"text": "abc"})],
)


def before(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult | None:
    """Block what the model may not do."""
    if context.tool_call.name == "forbidden" or signal.aborted:
        return BeforeToolCallResult(block=True, reason="not allowed")
    return None


def after(context: AfterToolCallContext, signal: AbortSignal) -> AfterToolCallResult | None:
    """Put a failure in friendlier words."""
    return AfterToolCallResult(content="That did not work.") if context.is_error else None


def next_turn(context: TurnContext, signal: AbortSignal) -> NextTurn | None:
    """Think harder after a tool."""
    return NextTurn(thinking_level="high") if context.tool_results else None


def prepare(state: AgentState) -> AgentContext:
    """Send the end of the history alone."""
    return AgentContext(state.system_prompt, state.messages[-20:], state.tools)


def show(event: Event) -> str:
    """Give an event in words."""
    match event:
        case MessageUpdateEvent(stream_event=TextDeltaEvent(delta=delta)):
            return delta
        case ToolExecEndEvent(tool_name=name, result=result, is_error=is_error):
            return f"{name}: {result.text} {is_error}"
        case AgentEndEvent(answer=answer):
            return answer.text
        case _:
            return ""


def print_text(event: Event) -> None:
    """Print text as it comes."""
    print(show(event), end="")


def the_agent_door(folder: str) -> list[str]:
    """Use an agent in every way there is."""
    store = ToolStore(name="typed")
    loaded: dict[str, AgentTool] = load_tools(store, folder)
    register_tool(store, REVERSE)
    sink = RecordingSink()
    model = ScriptedModel([call("reverse", {"text": "abc"}), "cba"], default="ok")
    with YiemAgent(
        model,
        system_prompt="Be kind.",
        tools=[add, wait_a_little],
        tool_store=store,
        event_sink=[sink, print_text],
        prepare_context=prepare,
        before_tool_call=before,
        after_tool_call=after,
        prepare_next_turn=next_turn,
        temperature=0.0,
        max_turns=10,
        name="typed",
        session=Session.in_memory(),
    ) as agent:
        going: bool = resume_agent(agent, retry_idempotent=True)
        run_agent(agent, "Reverse abc.", timeout_s=1)
        first: AssistantMessage = take_response(agent, timeout_s=10)
        second = ask(agent, {"role": "user", "content": "And again."}, timeout_s=10)
        receipt: Receipt = steer(agent, UserMessage("Hello."))
        joined = follow_up(agent, "Bye.").started
        third = take_response(agent)
        try:
            continue_agent(agent)
        except YiemAgentError as error:
            print(error)
        aborted: bool = abort_agent(agent, "enough")
        left: tuple[Any, ...] = stop_agent(agent, timeout_s=5)
        state: AgentState = agent.state
    return [
        *loaded,
        first.text,
        second.stop_reason,
        third.text,
        str(going),
        str(receipt.started),
        str(joined),
        str(aborted),
        str(left),
        str(state.active_run),
    ]


def the_loop_door(prompts: Sequence[UserMessage]) -> list[str]:
    """Use the loop in both of its forms."""
    context = AgentContext(
        "Be brief.", tools=get_tools(YiemAgent(my_model, tools=[add]).tool_store)
    )
    config = AgentLoopConfig(max_turns=3, tool_execution="barrier", should_stop_after_turn=stops)
    stream: EventStream = agent_loop(prompts, context, config, stream_fn=ScriptedModel(["Hi."]))
    with stream:
        texts = [show(event) for event in stream]
    sink = RecordingSink()
    new = run_agent_loop(prompts, context, config, sink, stream_fn=ScriptedModel(["Hi."]))
    check_event_order(sink.events)
    return [*texts, *(message.role for message in new), *(m.role for m in stream.result())]


@dataclasses.dataclass
class Sum:
    """What an answer must be."""

    value: int


def a_structured_answer() -> list[str]:
    """Ask for an object, within limits, and look at what it cost."""
    set_price("scripted:m", Price(input=1.0, output=2.0))
    model = ScriptedModel([call("final_answer", {"value": 3})])
    with YiemAgent(model, max_total_tokens=1000, cache="short") as agent:
        answer = ask(agent, "1 + 2?", output_schema=Sum)
        total: LlmUsage = agent.usage
    made: Sum = read_output(answer, Sum)
    return [str(made.value), str(answer.parsed["value"]), str(total.cost)]


def stops(context: TurnContext, signal: AbortSignal) -> bool:
    """Stop when the user has heard enough."""
    return signal.aborted or len(context.new_messages) > 100


def my_model(request: dict[str, Any]) -> str:
    """Answer without a model."""
    return f"You sent {len(request['messages'])} messages."


def main() -> None:
    """Run it all."""
    with tempfile.TemporaryDirectory() as folder:
        print(the_agent_door(folder))
    print(the_loop_door([UserMessage("Hello.")]))
    print(a_structured_answer())


if __name__ == "__main__":
    main()
