"""The server that the conformance suite wants to meet: `python fixture_server.py http PORT` or `… stdio`.

What its tools, resources and prompts are called and give is the suite's own word.
"""

from __future__ import annotations

import argparse
import json
import sys

from yiemagent.mcp.caller import current_caller
from yiemagent.mcp.offers import Prompt, PromptArgument, Resource, ResourceTemplate
from yiemagent.mcp.serve_http import HttpServing
from yiemagent.mcp.serve_stdio import serve_stdio
from yiemagent.mcp.server import McpServer
from yiemagent.messages import ImageContent, TextContent
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool, AgentToolResult

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
STEP_S = 0.05

SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def form(message, properties, required=()):
    """An elicitation."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sampling(text, max_tokens=100):
    """A question to the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [message], "maxTokens": max_tokens},
    }


ROOTS = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])

DEFAULTS = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {
        "type": "string",
        "description": "User status",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}
TITLED = [
    {"const": "value1", "title": "First Option"},
    {"const": "value2", "title": "Second Option"},
    {"const": "value3", "title": "Third Option"},
]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": {"type": "string", "description": "One", "enum": OPTIONS},
    "titledSingle": {"type": "string", "description": "One with titles", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "description": "One, as it was said before",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {
        "type": "array",
        "description": "Some",
        "minItems": 1,
        "maxItems": 3,
        "items": {"type": "string", "enum": OPTIONS},
    },
    "titledMulti": {
        "type": "array",
        "description": "Some with titles",
        "minItems": 1,
        "maxItems": 3,
        "items": {"anyOf": TITLED},
    },
}


class Fixture:
    """The server and what changes in it."""

    def __init__(self):
        self.store = ToolStore("conformance")
        self.added = 0
        for name, description, execute in self.tools():
            self.add(name, description, execute)
        self.add("test_sampling", "Asks the client's model", self.sample, prompt="string")
        self.add("test_elicitation", "Asks the person", self.elicit, message="string")
        self.add_raw("json_schema_2020_12_tool", SCHEMA_2020_12)
        self.add_raw(
            "test_header_tool",
            {
                "type": "object",
                "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "priority": {"type": "integer", "x-mcp-header": "Priority"},
                    "verbose": {"type": "boolean", "x-mcp-header": "Verbose"},
                },
            },
        )
        self.server = McpServer(
            self.store,
            name="yiemagent-conformance",
            version="1.0.0",
            instructions="For the conformance suite.",
            resources=self.resources(),
            prompts=self.prompts(),
        )

    def add(self, name, description, execute, **required):
        """Register a tool."""
        schema = {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in required.items()},
            "required": list(required),
        }
        self.store.register(
            AgentTool(
                name,
                description=description,
                input_schema=schema,
                execute=execute,
                parallel_tool_execute=True,
            )
        )

    def add_raw(self, name, schema):
        """Register a tool that tells its arguments."""
        self.store.register(
            AgentTool(
                name,
                description="Tells its arguments",
                input_schema=schema,
                execute=lambda call_id, args, signal, partial: json.dumps(args),
                parallel_tool_execute=True,
            )
        )

    def tools(self):
        """Name, description and function of the tools without arguments."""
        png, link = ImageContent(PNG, "image/png"), "test_input_required_result_"
        return [
            ("test_simple_text", "Text", given("This is a simple text response for testing.")),
            ("test_image_content", "An image", given([png])),
            (
                "test_audio_content",
                "A sound",
                adds({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
            ),
            (
                "test_embedded_resource",
                "A resource",
                adds(
                    embedded(
                        "test://embedded-resource",
                        "text/plain",
                        "This is an embedded resource content.",
                    )
                ),
            ),
            (
                "test_multiple_content_types",
                "Text, an image and a resource",
                adds(
                    embedded(
                        "test://mixed-content-resource",
                        "application/json",
                        '{"test":"data","value":123}',
                    ),
                    before=[TextContent("Multiple content types test:"), png],
                ),
            ),
            ("test_tool_with_logging", "Logs", logs),
            ("test_tool_with_progress", "Tells its progress", progresses),
            ("test_error_handling", "Fails", fails),
            ("test_reconnection", "Ends its stream", reconnects),
            ("test_elicitation_sep1034_defaults", "Asks with defaults", asks_form(DEFAULTS)),
            ("test_elicitation_sep1330_enums", "Asks with choices", asks_form(ENUMS)),
            ("test_missing_capability", "Needs sampling", needs_sampling),
            ("test_logging_tool", "Logs", logs),
            ("test_streaming_elicitation", "Asks", asks({"user_name": NAME})),
            ("test_trigger_tool_change", "Changes the tools", self.change_tools),
            ("test_trigger_prompt_change", "Changes the prompts", self.change_prompts),
            (f"{link}elicitation", "Asks for a name", greets),
            (
                f"{link}sampling",
                "Asks the model",
                asks({"capital_question": sampling("What is the capital of France?")}),
            ),
            (f"{link}list_roots", "Asks for the roots", asks({"client_roots": ROOTS})),
            (f"{link}request_state", "Asks, with a state", asks({"confirm": CONFIRM}, "state-ok")),
            (
                f"{link}multiple_inputs",
                "Asks three things",
                asks(
                    {
                        "user_name": NAME,
                        "greeting": sampling("Generate a greeting", 50),
                        "client_roots": ROOTS,
                    }
                ),
            ),
            (f"{link}multi_round", "Asks twice", asks_twice),
            (f"{link}tampered_state", "Asks, with a state", asks({"confirm": CONFIRM})),
            (f"{link}capabilities", "Asks what the client can do", asks_what_it_can),
        ]

    def resources(self):
        """The resources, and a family of them."""
        return [
            Resource(
                "test://static-text",
                "static-text",
                read=lambda: "This is the content of the static text resource.",
                description="Text",
                mime_type="text/plain",
            ),
            Resource(
                "test://static-binary",
                "static-binary",
                read=lambda: [{"blob": PNG, "mimeType": "image/png"}],
                description="An image",
                mime_type="image/png",
            ),
            Resource(
                "test://watched-resource",
                "watched-resource",
                read=lambda: "Watched resource content",
                mime_type="text/plain",
            ),
            ResourceTemplate(
                "test://template/{id}/data",
                "template",
                read=lambda **places: json.dumps(
                    {**places, "templateTest": True, "data": f"Data for ID: {places['id']}"}
                ),
                mime_type="application/json",
                complete={
                    "id": lambda typed, others: [
                        n for n in ("1", "12", "123") if n.startswith(typed)
                    ]
                },
            ),
        ]

    def prompts(self):
        """The prompts."""

        def arguments(*names):
            return [
                PromptArgument(
                    name,
                    f"The {name}",
                    required=True,
                    complete=lambda typed, others: ["test", "testing"],
                )
                for name in names
            ]

        def with_resource(resourceUri):  # noqa: N803 - its name in the suite
            block = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
            return [message(block), message("Please process the embedded resource above.")]

        return [
            Prompt(
                "test_simple_prompt",
                render=lambda: "This is a simple prompt for testing.",
                description="Text",
            ),
            Prompt(
                "test_prompt_with_arguments",
                description="Text with arguments",
                render=lambda arg1, arg2: f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'",
                arguments=arguments("arg1", "arg2"),
            ),
            Prompt(
                "test_prompt_with_embedded_resource",
                description="A resource and text",
                render=with_resource,
                arguments=arguments("resourceUri"),
            ),
            Prompt(
                "test_prompt_with_image",
                description="An image and text",
                render=lambda: [
                    message(ImageContent(PNG, "image/png")),
                    message("Please analyze the image above."),
                ],
            ),
            Prompt(
                "test_input_required_result_prompt",
                description="Asks first",
                render=asks_for_a_prompt,
            ),
        ]

    def sample(self, call_id, args, signal, partial):
        """Ask the client's model."""
        answer = current_caller().ask({"reply": sampling(args["prompt"])})["reply"]
        return f"LLM response: {answer['content']['text']}"

    def elicit(self, call_id, args, signal, partial):
        """Ask the person at the client."""
        question = form(
            args["message"], {"username": {"type": "string"}, "email": {"type": "string"}}
        )
        answer = current_caller().ask({"person": question})["person"]
        return f"User response: action={answer['action']}, content={json.dumps(answer.get('content', {}))}"

    def change_tools(self, call_id, args, signal, partial):
        """Add a tool."""
        self.added += 1
        self.add(f"test_added_{self.added}", "Came later", given("later"))
        return "The tools changed."

    def change_prompts(self, call_id, args, signal, partial):
        """Add a prompt."""
        self.added += 1
        prompt = Prompt(f"test_added_{self.added}", description="Later", render=lambda: "later")
        self.server.add_prompt(prompt)
        return "The prompts changed."


def message(content):
    """A message of a prompt."""
    return {"role": "user", "content": content}


def embedded(uri, mime_type, text):
    """A block that holds a resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}


def given(result):
    """A tool that gives the same always."""
    return lambda call_id, args, signal, partial: result


def adds(block, before=()):
    """A tool whose result ends in a block in MCP's form."""

    def execute(call_id, args, signal, partial):
        current_caller().add_content(block)
        return AgentToolResult(list(before))

    return execute


def logs(call_id, args, signal, partial):
    """Log three times."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        current_caller().log("info", text)
        signal.wait(STEP_S)
    return "Tool with logging executed successfully"


def progresses(call_id, args, signal, partial):
    """Tell of three steps."""
    for done in (0, 50, 100):
        partial({"progress": done, "total": 100, "message": f"Completed step {done} of 100"})
        signal.wait(STEP_S)
    return "done"


def fails(call_id, args, signal, partial):
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


def reconnects(call_id, args, signal, partial):
    """End the stream and give the result behind it."""
    current_caller().interrupt()
    signal.wait(2 * STEP_S)
    return "Reconnection test completed successfully."


def needs_sampling(call_id, args, signal, partial):
    """Need what the client may not have."""
    current_caller().require("sampling")
    return "The client has sampling."


def asks(questions, text="Thank you."):
    """A tool that asks and then thanks."""

    def execute(call_id, args, signal, partial):
        current_caller().ask(questions)
        return text

    return execute


def asks_form(properties):
    """A tool that asks for a form."""

    def execute(call_id, args, signal, partial):
        answer = current_caller().ask({"form": form("Please fill in the form", properties)})["form"]
        return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content', {}))}"

    return execute


def greets(call_id, args, signal, partial):
    """Greet by the name that is asked for."""
    answer = current_caller().ask({"user_name": NAME})["user_name"]
    return f"Hello, {answer['content']['name']}!"


def asks_twice(call_id, args, signal, partial):
    """Ask for a name, and then for a colour."""
    caller = current_caller()
    name = caller.elicit(
        "step1",
        "Step 1: What is your name?",
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
    color = caller.elicit(
        "step2",
        "Step 2: What is your favorite color?",
        {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
    )
    return f"{name['name']} likes {color['color']}."


def asks_what_it_can(call_id, args, signal, partial):
    """Ask only what the client has declared."""
    caller = current_caller()
    questions = {
        "elicitation": ("user_name", NAME),
        "sampling": ("greeting", sampling("Generate a greeting")),
    }
    caller.ask(dict(pair for name, pair in questions.items() if name in caller.call.capabilities))
    return "Thank you."


def asks_for_a_prompt():
    """Ask what the prompt is about."""
    schema = {
        "type": "object",
        "properties": {"context": {"type": "string"}},
        "required": ["context"],
    }
    answer = current_caller().elicit("user_context", "What context should the prompt use?", schema)
    return f"The context is {answer['context']}."


def main():
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=("http", "stdio"))
    parser.add_argument("port", nargs="?", type=int, default=0)
    options = parser.parse_args()
    with Fixture().server as server:
        if options.transport == "stdio":
            serve_stdio(server)
            return
        with HttpServing(server, port=options.port) as serving:
            print(serving.url, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
