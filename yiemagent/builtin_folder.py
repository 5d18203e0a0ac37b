"""Where tool files are: the built-in ones, and the folder that is to be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yiemagent.errors import ConfigurationError

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

__all__ = ["builtin_tools_dir", "folder_to_load"]


def builtin_tools_dir(group: str | None = None) -> Path:
    """The folder of built-in tool files: part of the installed package, else beside it in a checkout.

    Args:
        group: tools that do more than tell something, each group in a folder of its own, which `load_tools` loads only
            when it is given: "files", "shell" or "web". None: the folder with the others.

    Raises:
        ConfigurationError: there is no such group.
    """
    from pathlib import Path

    folder = _builtin_folder(Path(__file__).resolve().parent)
    if group is None:
        return folder
    groups = sorted(path.name for path in folder.iterdir() if any(path.glob("[!_]*.py")))
    if group not in groups:
        raise ConfigurationError(
            f"there is no group {group!r} of built-in tools; there are: {', '.join(groups)}"
        )
    return folder / group


def folder_to_load(directory: str | PathLike[str]) -> Path:
    """Give a folder of tool files, resolved.

    Raises:
        ConfigurationError: it is none; the text says which folder there always is.
    """
    from pathlib import Path

    folder = Path(directory).resolve()
    if not folder.is_dir():
        raise ConfigurationError(
            f"there is no folder {str(folder)!r} to load tools from; give one that holds tool files, or "
            "builtin_tools_dir() for the tools that come with the library"
        )
    return folder


def _builtin_folder(package: Path) -> Path:
    for folder in (package / "builtin_tools", package.parent / "tools"):
        if folder.is_dir():
            return folder
    raise ConfigurationError(f"{package} has no built-in tools with it; install yiemagent again")
