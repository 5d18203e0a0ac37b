"""Tool files tried in a child process: loaded, and called once where arguments are given.

What a file does while it is loaded or called, it does there: exit, crash, hang, flood the output, replace builtins.
The child has limits for time, memory, output and the size of files, and is killed with its whole process group. It
finds the same modules as this process and works in the same folder. It is no sandbox: what a file does to other files
and over networks, it does.

Both ends are in this room: `try_files` here, `main` in the child. They speak one line of JSON for each file.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import selectors
import signal as signals
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import attrs

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import (
    ConfigurationError,
    ToolError,
    ToolLoadError,
    error_text,
    shortened,
)
from yiemagent.payload import thaw_json

__all__ = ["Trial", "TrialReport", "main", "try_files"]

TIME_LIMIT_S = 20.0  # for each file
OUTPUT_BYTES = 1_000_000
MEMORY_BYTES = 4 << 30
FILE_BYTES = 100_000_000
_PIECE_BYTES = 65_536

# -I: nothing of the environment and of the working folder decides what is imported; the path comes with the work.
_BEGIN = (
    "import json, sys; work = json.load(sys.stdin); sys.path[:] = work['path']; "
    "from yiemagent.tool_trial import main; main(work)"
)


@attrs.frozen
class Trial:
    """A file to try.

    Args:
        path: the file.
        arguments: calls the tool once with them; None: it is only loaded.
        needed: modules that must be found, each with what to say where it isn't.
    """

    path: Path
    arguments: Mapping[str, Any] | None = None
    needed: Sequence[tuple[str, str]] = ()


@attrs.frozen(kw_only=True)
class TrialReport:
    """What came of a trial.

    Args:
        path: the file.
        problem: what is wrong, in words; None: nothing.
        line: the line of the file that is to blame, or None.
        name: the tool's name, where the file gave one.
        notes: what of the tool's schema can't be checked.
        text: what the trial call gave, shortened; None where there was none.
    """

    path: Path
    problem: str | None = None
    line: int | None = None
    name: str | None = None
    notes: tuple[str, ...] = ()
    text: str | None = None


def try_files(
    trials: Sequence[Trial],
    *,
    signal: AbortSignal | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    output_bytes: int = OUTPUT_BYTES,
) -> Iterator[TrialReport]:
    """Try files, in order, in as few children as it takes: one more for each that ended its child.

    Args:
        trials: the files.
        signal: ends it all.
        time_limit_s: how long each file may take.
        output_bytes: how much the files of one child may print.

    Raises:
        AbortedError: the signal was set.
        ConfigurationError: no child process can be had here.
    """
    if not sys.executable or not hasattr(os, "killpg"):
        raise ConfigurationError(
            "tool files are tried in a child process, which needs a Python of its own and a POSIX system"
        )
    signal = signal or AbortSignal()
    rest = list(trials)
    while rest:
        with _Child(rest, time_limit_s, output_bytes, signal) as child:
            for report in child.reports():
                rest.pop(0)
                yield report
            signal.raise_if_aborted()
            if rest:
                yield TrialReport(path=rest.pop(0).path, problem=child.ending())


# --- this end ------------------------------------------------------------------------------------------------------


class _Child:
    """A child process that tries files; used by one thread."""

    def __init__(
        self,
        trials: Sequence[Trial],
        time_limit_s: float,
        output_bytes: int,
        signal: AbortSignal,
    ) -> None:
        self._signal = signal
        self._paths = [trial.path for trial in trials]
        self._time_limit_s = time_limit_s
        self._output_left = self._output_bytes = output_bytes
        self._report = b""
        self._late = False
        self._garbled = False
        self._reading, writing = os.pipe()
        try:
            self._process = _started(writing)
        except BaseException:  # the pipe must not outlive it, whatever it is
            os.close(self._reading)
            raise
        finally:
            os.close(writing)
        self._selector = selectors.DefaultSelector()
        self._forget = signal.add_callback(self._kill)
        work = {"path": sys.path, "report": writing, "time_limit_s": time_limit_s}
        given = json.dumps({**work, "trials": [_told(trial) for trial in trials]}).encode()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._selector.close()
        os.close(self._reading)

    def _kill(self) -> None:
        """End the child and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signals.SIGKILL)

    def reports(self) -> Iterator[TrialReport]:
        """Give the reports as they come, until all are there or the child is done for."""
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._selector.register(self._reading, selectors.EVENT_READ)
        left = list(self._paths)
        deadline = Deadline(self._time_limit_s)
        while left and (lines := self._lines(deadline)) is not None:
            for line in lines[: len(left)]:
                report = _report(left[0], line)
                if report is None:
                    self._garbled = True
                    return
                left.pop(0)
                deadline = Deadline(self._time_limit_s)
                yield report

    def _lines(self, deadline: Deadline) -> list[bytes] | None:
        """Wait for something, and give the reports that are whole now; None: there will be no more."""
        ready = self._selector.select(deadline.remaining_s())
        self._late = not ready
        if self._late or self._signal.aborted:
            return None
        for key, _ in ready:
            piece = os.read(key.fd, _PIECE_BYTES)
            if key.fd == self._reading:
                self._report += piece
                if not piece:
                    return None
            else:
                self._output_left -= len(piece)
                if not piece:
                    self._selector.unregister(key.fileobj)
        if self._output_left < 0 or len(self._report) > self._output_bytes:
            return None
        *lines, self._report = self._report.split(b"\n")
        return lines

    def ending(self) -> str:
        """Say why there is no report of the next file; ends the child."""
        self._kill()
        code = self._process.wait()
        if self._output_left < 0:
            return f"it printed more than {self._output_bytes:,} bytes, and was ended"
        if self._late:
            return f"it did not end within {self._time_limit_s:g} s, and was ended"
        if self._garbled:
            return "it wrote into the report of its own trial"
        if code < 0:
            return f"its process was killed by signal {-code} ({signals.strsignal(-code)})"
        return f"its process ended with exit code {code} before it was done"


def _started(writing: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this very Python, with code of ours
        [sys.executable, "-I", "-c", _BEGIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[writing],
        start_new_session=True,
    )


def _told(trial: Trial) -> dict[str, Any]:
    arguments = None if trial.arguments is None else thaw_json(dict(trial.arguments))
    return {"path": str(trial.path), "arguments": arguments, "needed": list(trial.needed)}


def _report(path: Path, line: bytes) -> TrialReport | None:
    """Give a report as the child wrote it, no text longer than it may be, or None where it can't be that."""
    try:
        given = json.loads(line)
        words = {key: shortened(text) for key, text in given.items() if isinstance(text, str)}
        notes = tuple(map(shortened, given.get("notes", ())))
        return TrialReport(**{**given, **words, "path": path, "notes": notes})
    except (AttributeError, TypeError, ValueError):  # whatever the file wrote in its place
        return None


# --- the child's end -------------------------------------------------------------------------------------------------


def main(work: Mapping[str, Any]) -> NoReturn:
    """Try the files of `work` and report on each; what the child process does."""
    os.set_inheritable(work["report"], False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.dont_write_bytecode = True
    _limit(work["time_limit_s"] * (len(work["trials"]) + 1))
    sys.addaudithook(_refuse_copies)
    own = os.getpid()
    for trial in work["trials"]:
        report = _tried(trial)
        if os.getpid() != own:  # a copy of this process that the file made after all
            os._exit(0)
        os.write(work["report"], json.dumps(report).encode() + b"\n")
    os._exit(0)  # nothing that a file left behind has a say in it


def _limit(seconds: float) -> None:
    import resource  # POSIX alone has it

    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower one holds already
            resource.setrlimit(kind, (limit, limit))
    signals.alarm(int(seconds) + 5)  # where nobody is left to end it


def _refuse_copies(event: str, args: tuple[Any, ...]) -> None:
    del args
    if event in {"os.fork", "os.forkpty"}:
        raise ToolError("a tool must not fork: that would copy the agent's process; use subprocess")


def _tried(trial: Mapping[str, Any]) -> dict[str, Any]:
    from yiemagent.registry import ToolStore, load_tool_file
    from yiemagent.schema import sound_schema

    path = Path(trial["path"])
    before = _digest(path)
    report: dict[str, Any] = {}
    replaced: list[str] = []
    try:
        for module, place in trial["needed"]:
            if not _is_there(module):
                return {"problem": f"{place}: there is no module {module!r} here"}
        with _Builtins(replaced):
            tool = load_tool_file(ToolStore(), path)
        report = {"name": tool.name, "notes": sound_schema(tool.input_schema)[1]}
        if trial["arguments"] is not None:
            with _Builtins(replaced):
                report["text"] = _called(tool, trial["arguments"])
    except ToolLoadError as error:
        report |= {"problem": error.reason, "line": error.line}
    except BaseException as error:  # a tool may raise anything, SystemExit included
        report |= {"problem": f"the trial call failed: {_words(error)}", "line": _line(error, path)}
    if replaced:
        report |= {"problem": f"it replaces builtins of Python: {', '.join(replaced)}"}
    if "problem" not in report and _digest(path) != before:
        report["problem"] = "it changed or removed its own file"
    return report


class _Builtins:
    """A block after which Python's builtins are what they were; names those that something else had taken.

    It leaves without using any of them.
    """

    def __init__(self, replaced: list[str]) -> None:
        self._replaced = replaced
        self._table = vars(builtins)
        self._saved = dict(self._table)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        now = self._table.copy()
        self._table.update(self._saved)
        self._replaced += sorted(n for n, v in self._saved.items() if now.get(n, self) is not v)


def _is_there(module: str) -> bool:
    if module.startswith("."):
        return True  # found beside the file when it is loaded
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # a parent is not there, or is no package
        return module in sys.modules


def _called(tool: Any, arguments: dict[str, Any]) -> str:
    """Call a tool as the pipeline does, and give what it gave."""
    from yiemagent.arguments import checker_for

    if tool.prepare_arguments is not None:
        arguments = tool.prepare_arguments(arguments)
        if not isinstance(arguments, dict):
            raise ToolError(f"prepare_arguments gave {arguments!r} instead of a dict")
    arguments = checker_for(tool).check(arguments)
    if tool.validate_required_args is not None:
        problem = tool.validate_required_args(thaw_json(arguments))
        if problem is not None:
            raise ToolError(f"the example is refused: {problem}")
    return shortened(str(tool.execute("trial", arguments).text))


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"it writes more than {FILE_BYTES:,} bytes to one file"
    return shortened(error_text(error))


def _line(error: BaseException, path: Path) -> int | None:
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines[-1] if lines else None


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
