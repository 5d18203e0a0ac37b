"""Who may call what: rules for `before_tool_call`, and asking a person.

Rules are put in a row with `|`; the first that has an opinion of a call decides. What no rule decides is blocked as
soon as one of them can allow something; a row that only denies lets the rest go on.

    before_tool_call = deny("drop_*") | allow(read_only=True) | ask_in_terminal(keep="approvals.jsonl")

What a tool says of itself (`annotations`) is its author's word. Trust it as far as you trust the author: a server that
calls its tools read-only may be wrong.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, TextIO, TypeAlias

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.decisions import Decided, DecisionFile, same_arguments
from yiemagent.errors import AbortedError, ConfigurationError
from yiemagent.hooks import BeforeToolCallContext, BeforeToolCallResult, before_result
from yiemagent.record import Record
from yiemagent.terminal_prompt import ask_line, shown
from yiemagent.tool import AgentTool, is_async

__all__ = ["Approval", "Remember", "allow", "ask_in_terminal", "ask_later", "decided", "deny"]

logger = logging.getLogger("yiemagent.approval")

Remember: TypeAlias = Literal["tool", "call"]
When: TypeAlias = Callable[[BeforeToolCallContext], object]

_SHOWN_CHARS = 1500
_SHOWN_LINES = 40
_ALLOWED = BeforeToolCallResult()


class _Rule(Protocol):
    """One rule of a row."""

    @property
    def can_allow(self) -> bool:
        """Whether it may let a call go through."""
        ...

    def decide(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        """Give a decision, or None for no opinion."""
        ...


class Approval:
    """A row of rules; a `before_tool_call` hook. Made by `allow`, `deny` and `ask_in_terminal`, joined with `|`.

    One of them may serve many agents.
    """

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    def __or__(self, other: Any) -> Approval:
        """Ask `other` next: an `Approval`, or a hook of yours, whose None is no opinion."""
        return Approval((*self._rules, *_rules_of(other)))

    def __ror__(self, other: Any) -> Approval:
        """Ask a hook of yours first."""
        return Approval((*_rules_of(other), *self._rules))

    def __call__(
        self, call: BeforeToolCallContext, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        """Decide about a call, as `before_tool_call` does."""
        name = call.tool_call.name
        tool = call.context.tools.get(name)
        if tool is None:  # the loop never asks about what it does not know; a program might
            return _blocked(f"There is no tool {name}.")
        for rule in self._rules:
            decision = rule.decide(call, tool, signal)
            if decision is not None:
                return decision
        if any(rule.can_allow for rule in self._rules):
            return _blocked(f"The tool {name} may not be called here.")
        return None


def _rules_of(other: Any) -> tuple[_Rule, ...]:
    if isinstance(other, Approval):
        return other._rules
    if callable(other) and not is_async(other):
        return (_Hook(other),)
    raise ConfigurationError(
        f"{other!r} is no rule: join allow(…), deny(…), ask_in_terminal(…) or a hook"
    )


def _blocked(reason: str) -> BeforeToolCallResult:
    return BeforeToolCallResult(block=True, reason=reason)


# --- which calls -----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class _Which(Record):
    """Which calls a rule is about: all that is given must fit."""

    names: tuple[str, ...] = ()
    read_only: bool | None = None
    destructive: bool | None = None
    when: When | None = None

    def fits(self, call: BeforeToolCallContext, tool: AgentTool) -> bool:
        if self.names and not any(fnmatch.fnmatchcase(tool.name, one) for one in self.names):
            return False
        read_only = tool.annotations.get("readOnlyHint") is True
        # The defaults of MCP: a tool that says nothing may change and destroy things.
        destructive = not read_only and tool.annotations.get("destructiveHint") is not False
        if self.read_only not in {None, read_only} or self.destructive not in {None, destructive}:
            return False
        return self.when is None or bool(self.when(call))


def _which(
    names: tuple[Any, ...],
    *,
    read_only: bool | None,
    destructive: bool | None,
    when: Any,
) -> _Which:
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(
                f"{name!r} is no name of a tool, such as 'read_file', nor a pattern of names, such as 'read_*'"
            )
    if when is not None and (not callable(when) or is_async(when)):
        raise ConfigurationError(f"when must be a plain function of the call, not {when!r}")
    return _Which(names, read_only, destructive, when)


def allow(
    *names: str,
    read_only: bool | None = None,
    destructive: bool | None = None,
    when: When | None = None,
) -> Approval:
    """Let calls go through.

    Args:
        names: names of tools, or patterns with `*`, `?` and `[…]`; none: whatever the name.
        read_only: True: only tools that say they change nothing (`readOnlyHint`); False: only the others.
        destructive: False: only tools that say they destroy nothing (`destructiveHint`) or change nothing; True: only
            the others, those that say nothing among them.
        when: asked about the call, `(BeforeToolCallContext)`; only calls for which it gives something true.

    Raises:
        ConfigurationError: a name or `when` is none.
    """
    which = _which(names, read_only=read_only, destructive=destructive, when=when)
    return Approval([_Fixed(which, _ALLOWED)])


def deny(
    *names: str,
    reason: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    when: When | None = None,
) -> Approval:
    """Block calls.

    Args:
        names: names of tools, or patterns, as with `allow`.
        reason: why, for the model.
        read_only: as with `allow`.
        destructive: as with `allow`.
        when: as with `allow`.

    Raises:
        ConfigurationError: a name or `when` is none.
    """
    which = _which(names, read_only=read_only, destructive=destructive, when=when)
    return Approval([_Fixed(which, _blocked(reason or "This call is not allowed here."))])


def ask_later(
    *names: str,
    read_only: bool | None = None,
    destructive: bool | None = None,
    when: When | None = None,
) -> Approval:
    """Let somebody decide later, perhaps in another process: the run ends, and its session keeps what waits.

    No call of the answer is run; see `yiemagent.sessions.take_up_paused` for how to go on.

    Args:
        names: names of tools, or patterns, as with `allow`.
        read_only: as with `allow`.
        destructive: as with `allow`.
        when: as with `allow`.

    Raises:
        ConfigurationError: a name or `when` is none.
    """
    which = _which(names, read_only=read_only, destructive=destructive, when=when)
    return Approval([_Fixed(which, BeforeToolCallResult(pause=True))])


def decided(decisions: Mapping[str, bool | str]) -> Approval:
    """Decide about single calls, by their ids; has no opinion of others.

    Args:
        decisions: by the call's id: True lets it go through; False blocks it, and so does a text, which is the reason
            for the model.

    Raises:
        ConfigurationError: a decision is none.
    """
    for call_id, decision in decisions.items():
        if not isinstance(decision, (bool, str)):
            raise ConfigurationError(
                f"the decision about {call_id!r} must be True, False or a reason, not {decision!r}"
            )
    return Approval([_Decided(dict(decisions))])


@attrs.frozen(eq=False, repr=False)
class _Decided(Record):
    """What was decided about single calls."""

    decisions: Mapping[str, bool | str]
    can_allow: bool = True

    def decide(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        del tool, signal
        decision = self.decisions.get(call.tool_call.id)
        if decision is None or decision is True:
            return _ALLOWED if decision else None
        return _blocked(decision or "The user did not allow this call.")


@attrs.frozen(eq=False, repr=False)
class _Fixed(Record):
    """Decides the same about all that it is about."""

    which: _Which
    decision: BeforeToolCallResult

    @property
    def can_allow(self) -> bool:
        return not self.decision.block

    def decide(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        del signal
        return self.decision if self.which.fits(call, tool) else None


@attrs.frozen(eq=False, repr=False)
class _Hook(Record):
    """A hook of the user's own."""

    hook: Callable[[BeforeToolCallContext, AbortSignal], Any]
    can_allow: bool = False

    def decide(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        del tool
        return before_result(self.hook(call, signal))


# --- asking ----------------------------------------------------------------------------------------------------------


def ask_in_terminal(
    *names: str,
    keep: str | PathLike[str] | None = None,
    remember: Remember = "tool",
    read_only: bool | None = None,
    destructive: bool | None = None,
    when: When | None = None,
    stdin: int = 0,
    out: TextIO | None = None,
) -> Approval:
    """Ask the person at the terminal, who may decide for this once, for the run, or for ever.

    It waits as long as that takes, and an abort ends the wait at once. At the end of the input the call is blocked.
    "For this run" is for the same tool object: one that was loaded anew is asked for again. "For ever" is for a tool of
    that name which says the same of itself and, where it is from a tool file, has the same code; see
    `yiemagent.decisions`.

    Args:
        names: names of tools, or patterns, as with `allow`.
        keep: the file for decisions for ever; None offers none. Keep it where no tool can write.
        remember: what a decision for longer is about: "tool": the tool, whatever its arguments; "call": the same
            arguments only.
        read_only: as with `allow`.
        destructive: as with `allow`.
        when: as with `allow`.
        stdin: the descriptor to read from.
        out: where the question goes; None: stderr.

    Raises:
        ConfigurationError: a name, `when` or `remember` is none.
    """
    if remember not in {"tool", "call"}:
        raise ConfigurationError(f"remember must be 'tool' or 'call', not {remember!r}")
    which = _which(names, read_only=read_only, destructive=destructive, when=when)
    file = None if keep is None else DecisionFile(keep)
    return Approval([_Asking(which, file, remember, stdin, out)])


_WORDS = {
    "y": ("allow", "once"),
    "yes": ("allow", "once"),
    "r": ("allow", "run"),
    "run": ("allow", "run"),
    "f": ("allow", "ever"),
    "forever": ("allow", "ever"),
    "n": ("deny", "once"),
    "no": ("deny", "once"),
    "v": ("deny", "ever"),
    "never": ("deny", "ever"),
}


class _Asking:
    """Asks, and remembers."""

    can_allow = True

    def __init__(
        self,
        which: _Which,
        file: DecisionFile | None,
        remember: Remember,
        stdin: int,
        out: TextIO | None,
    ) -> None:
        self._which = which
        self._file = file
        self._remember = remember
        self._stdin = stdin
        self._out = out
        # What was allowed for a run, by the signal of the run, and by tool: its arguments, or None for any. A run asks
        # from one thread only, so each inner table has one user.
        self._runs: weakref.WeakKeyDictionary[
            AbortSignal, list[tuple[AgentTool, Mapping[str, Any] | None]]
        ] = weakref.WeakKeyDictionary()

    def decide(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult | None:
        if not self._which.fits(call, tool):
            return None
        decided = self._remembered(call, tool, signal)
        if decided is not None:
            return _ALLOWED if decided == "allow" else _blocked("The user never allows this call.")
        try:
            return self._ask(call, tool, signal)
        except AbortedError:  # the pipeline says what an aborted call is told
            return _blocked("The run was aborted while the user was asked.")

    def _remembered(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> Decided | None:
        decided = None if self._file is None else self._file.find(tool, call.args)
        if decided is not None:
            return decided
        for known, arguments in self._runs.get(signal, ()):
            if known is tool and (arguments is None or same_arguments(arguments, call.args)):
                return "allow"
        return None

    def _ask(
        self, call: BeforeToolCallContext, tool: AgentTool, signal: AbortSignal
    ) -> BeforeToolCallResult:
        question = self._question(call, tool, _SHOWN_CHARS)
        while True:
            answer = ask_line(question, signal, stdin=self._stdin, out=self._out)
            if answer is None:
                return _blocked("The user could not be asked: the input has ended.")
            word, _, rest = answer.partition(" ")
            if word.lower() in {"s", "show"}:
                question = self._question(call, tool, None)
                continue
            decision, period = _WORDS.get(word.lower(), ("", ""))
            offered = period != "ever" or self._file is not None
            if not decision or not offered or (rest and decision == "allow"):
                question = f"{shown(answer, 60)!r} is none of the answers. {self._answers()} > "
                continue
            self._keep(call, tool, signal, decision, period)
            if decision == "allow":
                return _ALLOWED
            said = f" They said: {rest.strip()}" if rest.strip() else ""
            return _blocked(f"The user did not allow this call.{said}")

    def _keep(
        self,
        call: BeforeToolCallContext,
        tool: AgentTool,
        signal: AbortSignal,
        decision: Any,
        period: str,
    ) -> None:
        arguments = dict(call.args) if self._remember == "call" else None
        if period == "run":
            self._runs.setdefault(signal, []).append((tool, arguments))
        elif period == "ever" and self._file is not None:
            try:
                self._file.add(tool, decision, arguments)
            except OSError as error:  # it holds for this once all the same
                logger.warning("a decision can't be kept in %s: %s", self._file.path, error)

    def _question(self, call: BeforeToolCallContext, tool: AgentTool, limit: int | None) -> str:
        lines = [f"\nThe agent wants to call {tool.name} ({shown(tool.label, 100)}):"]
        for name, value in call.args.items():
            if isinstance(value, str) and "\n" in value:
                lines += [f"  {shown(name, 100)}:", *_shown_lines(value, limit)]
                continue
            text = json.dumps(value, ensure_ascii=False, default=str)
            lines.append(f"  {shown(name, 100)}: {shown(text, limit)}")
        if self._file is not None and self._file.allowed_another(tool, call.args):
            lines.append(
                "(It was allowed for ever, and has changed since: its code, or its words.)"
            )
        return "\n".join([*lines, f"{self._answers()} > "])

    def _answers(self) -> str:
        what = "these arguments" if self._remember == "call" else "any arguments"
        longer = f"[r] {what} for this run"
        if self._file is not None:
            longer += f"  [f] {what} for ever  [v] never"
        return f"[y] yes, once  {longer}  [n] no, and why  [s] show all"


def _shown_lines(text: str, limit: int | None) -> list[str]:
    """Give a text of several lines, each behind a mark, so that none passes for another part of the question."""
    given = text.split("\n")
    each = limit and max(200, limit // len(given))
    lines = [f"    | {shown(line, each)}" for line in given]
    if limit is None or len(lines) <= _SHOWN_LINES:
        return lines
    half = _SHOWN_LINES // 2
    return [*lines[:half], f"    … {len(lines) - 2 * half} lines more …", *lines[-half:]]
