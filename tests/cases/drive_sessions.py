"""Sessions whose file was damaged: the kind `session`, whose recipe says what is done to the library's own file."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from yiemagent.messages import UserMessage
from yiemagent.sessions import Session

APPENDED = "loaded + 1, the new message last"
REPORT = "a warning/log names the file and the line"
SAMPLES = "only pictures of the damage; the real format is the library's own"
SAVE = "an interrupted save never destroys earlier messages"
WORDS = {"after_append_and_reload": APPENDED, "report": REPORT, "samples": SAMPLES, "save": SAVE}
INSIDE = (
    "the first 3-byte character of the last message (written raw; if the library escapes, cut "
    "inside an escape)"
)


def drive_damage(case, data):
    """Write the messages, damage the file in each way, and open, go on with and open it again."""
    for name, words in WORDS.items():
        if case.field(name) not in {words, None}:
            case.problem(name, [f"can't drive {case.field(name)!r}"])
    for name in case.inputs(".jsonl"):
        case.take(name)
    loaded = case.field("loaded")
    for name, recipe in data["damage"].items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.jsonl"
            with Session.create(path, fsync="never") as session:
                for text in data["messages"]:
                    session.add_message(UserMessage(text))
            whole = path.read_bytes()
            damaged = _damaged(whole, recipe, data["messages"][-1])
            if damaged is None:
                case.problem(name, [f"can't drive the damage {recipe}"])
                continue
            path.write_bytes(damaged)
            if name in loaded:
                case.problem(name, _problems(path, loaded[name], data["messages"]))
            else:
                case.problem(name, ["can't drive it: nothing is expected of it"])


def _damaged(data, recipe, last):
    for step, value in recipe.items():
        match step:
            case "cut_last_bytes":
                data = data[:-value]
            case "append":
                data += value.encode()
            case "append_nul_bytes":
                data += bytes(value)
            case "cut_to_inside" if value == INSIDE:
                wide = next(character for character in last if len(character.encode()) == 3)
                data = data[: data.rindex(wide.encode()) + 1]
            case _:
                return None
    return data


def _problems(path, loaded, texts):
    logged = _Texts()
    logging.getLogger("yiemagent").addHandler(logged)
    try:
        with Session.open(path, fsync="never") as session:
            found = [message.text for message in session.messages]
            warnings = [*session.warnings, *logged.texts]
            session.add_message(UserMessage("after"))
    finally:
        logging.getLogger("yiemagent").removeHandler(logged)
    with Session.open(path, fsync="never") as session:
        again = [message.text for message in session.messages]
    problems = [] if found == texts[:loaded] else [f"it loaded {found}"]
    problems += [] if again == [*texts[:loaded], "after"] else [f"it went on as {again}"]
    if loaded < len(texts) and not any(path.name in text and "line" in text for text in warnings):
        problems.append(f"what was lost is not told: {warnings}")
    return problems


class _Texts(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(self.format(record))
